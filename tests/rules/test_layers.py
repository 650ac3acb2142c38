"""Rules about imports that the import-linter contract in pyproject.toml cannot say."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.files import ROOT, python_files

# What would make the core depend on the moment or the machine it runs on.
IMPURE_MODULES = {
    "time",
    "random",
    "secrets",
    "uuid",
    "subprocess",
    "socket",
    "asyncio",
    "tempfile",
    "threading",
}
IMPURE_CALLS = re.compile(
    r"^(os\.(environ|getenv|urandom|getcwd)|(datetime\.)*(datetime|date)\.(now|utcnow|today)|Path\.(home|cwd))$"
)

# `container/` runs in the image, where nothing of the project is installed.
IMAGE_STDLIB_ONLY = {"container/sagemaker_args.py", "container/serve", "container/serve.py"}


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _tree(path: Path) -> ast.AST:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [p for p in python_files("toolkit") if "core" in p.parts], ids=str)
def test_the_core_knows_no_clock_environment_or_chance(path: Path) -> None:
    tree = _tree(path)
    assert not IMPURE_MODULES & {name.split(".")[0] for name in _imports(tree)}
    used = {
        f"{name}, line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and IMPURE_CALLS.match(name := ast.unparse(node))
    }
    assert not used, "the core is given what it needs as arguments"


@pytest.mark.parametrize("path", python_files("container"), ids=str)
def test_the_container_stands_alone(path: Path) -> None:
    roots = _roots(path)
    assert not roots & {"peagle_sm", "stacks", "scripts", "tests", "boto3"}
    if str(path) in IMAGE_STDLIB_ONLY:
        assert roots <= sys.stdlib_module_names | {"sagemaker_args"}


@pytest.mark.parametrize("path", python_files("toolkit"), ids=str)
def test_the_toolkit_imports_neither_stacks_nor_scripts_nor_tests(path: Path) -> None:
    assert not {"stacks", "scripts", "tests", "aws_cdk", "container"} & _roots(path)


@pytest.mark.parametrize("path", python_files("stacks"), ids=str)
def test_the_stacks_import_neither_scripts_nor_tests(path: Path) -> None:
    assert not {"scripts", "tests"} & _roots(path)


def test_the_trainer_needs_nothing_of_the_toolkit() -> None:
    """Its environment has torch and no peagle-sm. The toolkit's Python runs held_out.py."""
    trainer = [path for path in python_files("scripts") if path.parts[1] == "train_tiny"]
    assert [path.name for path in trainer if "peagle_sm" in _roots(path)] == ["held_out.py"]


def _roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in _imports(_tree(path))}
