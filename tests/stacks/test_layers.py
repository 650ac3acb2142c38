"""The stacks import the CDK, pydantic, and of peagle_sm the pure core, `load_spec` and its file of prices."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The Lambdas' package has rules of its own.
SYNTHESISED = [ROOT / "app.py"] + [
    path
    for path in sorted((ROOT / "stacks").rglob("*.py"))
    if "runtime" not in path.relative_to(ROOT / "stacks").parts
]
PRICES = "peagle_sm.aws.control.price_file"
"""Reads the prices that `peagle-sm plan` kept in a file, and nothing else."""
ALLOWED = ("aws_cdk", "constructs", "jsii", "pydantic", "stacks", "peagle_sm.core", PRICES)


def _modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", SYNTHESISED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_stack_imports_the_cdk_and_the_core_alone(path: Path) -> None:
    foreign = [
        name
        for name in _modules(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and name != "peagle_sm"  # the public names, of which a stack takes `load_spec`
        and not any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED)
    ]
    assert foreign == []


@pytest.mark.parametrize("path", SYNTHESISED, ids=lambda path: str(path.relative_to(ROOT)))
def test_synthesis_reads_no_clock_and_calls_nobody(path: Path) -> None:
    """The same spec and the same kept prices give the same template, on any machine and at any time."""
    text = path.read_text(encoding="utf-8")
    assert not {"time", "datetime", "random", "socket", "subprocess", "urllib", "uuid"} & set(_modules(path))
    assert "datetime.now" not in text
