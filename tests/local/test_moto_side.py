"""moto's applications are made although another thread parses Python at the same moment."""

from __future__ import annotations

import pytest

from sagemaker_local.other_services.moto import made_beside_other_parsers


def test_an_application_is_made_again_when_the_depth_of_the_ast_was_miscounted() -> None:
    failures = iter([SystemError("AST constructor recursion depth mismatch (before=90, after=65)")])

    def make() -> str:
        for failure in failures:
            raise failure
        return "application"

    assert made_beside_other_parsers(make) == "application"


def test_a_system_error_that_stays_is_raised_after_five_attempts() -> None:
    attempts = []

    def make() -> None:
        attempts.append(1)
        raise SystemError("always")

    with pytest.raises(SystemError, match="always"):
        made_beside_other_parsers(make)
    assert len(attempts) == 5
