"""The shipped schemas of CloudFormation's types are those of the installed cfn-lint."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from stacks.schemas import PATH


def test_the_shipped_schemas_are_what_the_script_makes(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("cfn_schemas", root / "scripts" / "lib" / "cfn_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text_for_the_stacks() == PATH.read_text(encoding="utf-8")
