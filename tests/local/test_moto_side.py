"""moto's applications are made without parsing Python, which two threads may not do at once."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from sagemaker_local.other_services.rules import lay_rules


def test_an_application_is_made_without_parsing_python(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.moto_server.werkzeug_app import create_backend_app

    def refuse(*_: Any, **__: Any) -> None:
        raise SystemError("AST constructor recursion depth mismatch (before=90, after=65)")

    lay_rules()
    with monkeypatch.context() as patch:  # pytest itself parses, when a test fails
        patch.setattr(ast, "parse", refuse)
        application = create_backend_app("lambda")
    adapter = application.url_map.bind("localhost")
    assert adapter.match("/2015-03-31/functions/sweeper", method="GET")[1] == {
        "api_version": "2015-03-31",
        "function_name": "sweeper",
    }
