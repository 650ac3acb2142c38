"""What moto does not do safely in several threads at once: parse Python, and look up an operation."""

from __future__ import annotations

import ast
from threading import Thread
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


class _AsksInBetween(dict[Any, Any]):
    """A cache of models; another thread asks for the same model as soon as the first one is kept."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self._other = Thread(target=lambda: self.found.append(model.operation_model(name)), daemon=True)
        self._asked = False

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if not self._asked:
            self._asked = True
            self._other.start()
            self._other.join(0.5)  # the other one is finished by now, or waits for us

    def wait(self) -> None:
        self._other.join(30)


def test_a_thread_that_asks_amid_the_look_up_gets_the_whole_model() -> None:
    from moto.core.model import ServiceModel

    lay_rules()
    operation = {"name": "Create", "http": {"method": "POST", "requestUri": "/functions"}}
    model = ServiceModel({"metadata": {}, "operations": {"Create": operation}}, "lambda")
    cache = _AsksInBetween(model, "Create")
    model._instance_cache = cache

    assert model.operation_model("Create").http_trait.path == "/functions"
    cache.wait()
    assert [found.http_trait.path for found in cache.found] == ["/functions"]
