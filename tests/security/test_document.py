"""docs/explanation/security.md names tests; they are there."""

from __future__ import annotations

import re

import pytest

from tests.rules.files import ROOT

PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_the_document_names_tests() -> None:
    assert len(NAMED) > 15


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_control_has_its_test(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
