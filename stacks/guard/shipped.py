"""The guard's template as `peagle-sm guard install` sends it, written into the toolkit: it needs no Node.

Run as ``python -m stacks.guard.shipped`` (scripts/lib/guard-template) after every change of the stack; a
test holds the file equal to what this makes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from aws_cdk import App

from peagle_sm.core.guard import names
from stacks.guard.guard_stack import GuardStack

TEMPLATE = Path(__file__).parents[2] / "toolkit" / "peagle_sm" / "guard_assets" / "template.json"


def template(*, shipped: bool = True) -> dict[str, Any]:
    """Synthesise the stack for any account and region, and return its template."""
    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder, analytics_reporting=False)
        GuardStack(app, shipped=shipped)
        made = app.synth().get_stack_by_name(names.GUARD_STACK).template
    assert isinstance(made, dict)
    return made


def text(document: dict[str, Any]) -> str:
    """Return compact JSON: CloudFormation takes at most 51,200 bytes without an upload."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def main() -> None:
    """Write the file."""
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_text(text(template()), encoding="utf-8")


if __name__ == "__main__":
    main()
