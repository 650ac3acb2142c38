"""The page that follows three commands through the code names modules and functions that exist."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from operator import attrgetter

from tests.rules.files import ROOT

PAGE = ROOT / "docs" / "explanation" / "follow.md"


def test_every_function_on_the_page_exists() -> None:
    sys.path.insert(0, str(ROOT / "stacks" / "guard" / "runtime"))
    found = re.findall(r"`(peagle_\w+[\w.]*):([\w.]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(found) > 20
    for module, name in found:
        attrgetter(name)(import_module(module))
