"""The guard's template as it ships: a file, so that these tests need no Node."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest


@pytest.fixture
def template() -> dict[str, Any]:
    """A copy of its own for each test, to plant faults in."""
    document = json.loads((files("peagle_sm") / "guard_assets" / "template.json").read_text())
    assert isinstance(document, dict)
    return document
