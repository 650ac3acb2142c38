"""Rules about imports that the contracts of import-linter in pyproject.toml cannot say."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
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

# Methods of files and folders.
FILE_CALLS = re.compile(
    r"(^|\.)(open|iterdir|glob|rglob|mkdir|unlink|stat|exists|is_file|is_dir|"
    r"read_text|read_bytes|read_binary|write_text|write_bytes)$"
)
# These read the data of installed packages: the catalogue, the advisories, the time zones, the guard's code.
READ_PACKAGES = {"engines.py", "guard.py", "hours.py"}
CORES = ("toolkit/peagle-sm/peagle_sm/core", "toolkit/peagle-learn/peagle_learn/core")

TOOLKIT = ("peagle_sm", "peagle_bench", "peagle_learn", "sagemaker_local")
# What the files of a folder may not import.
FORBIDDEN = {
    # It runs in the image, where nothing of the project is installed.
    "container": {*TOOLKIT, "stacks", "scripts", "tests", "boto3"},
    "stacks": {"scripts", "tests"},
    **{
        f"toolkit/{package.replace('_', '-')}/{package}": {
            "stacks",
            "scripts",
            "tests",
            "aws_cdk",
            "container",
        }
        for package in TOOLKIT
    },
    # Its environment has torch and no peagle-sm; the toolkit's Python runs two of its modules.
}
IMAGE_STDLIB_ONLY = "container/sagemaker_args.py"

# Where the packages lie that are not in the root or in toolkit/.
PACKAGES_APART = (
    "container",
    "container/plugins/peagle_cpu_fixes",
    "container/plugins/peagle_runtime_k",
    "stacks/guard/runtime",
)
PACKAGES = (
    *TOOLKIT,
    "stacks",
    "scripts",
    "peagle_gate",
    "peagle_cpu_fixes",
    "peagle_runtime_k",
    "peagle_train",
    "peagle_guard",
)


def test_the_core_knows_no_clock_environment_or_chance() -> None:
    faults = []
    for path in python_files(*CORES):
        faults += [f"{path} imports {name}" for name in sorted(IMPURE_MODULES & _roots(path))]
        faults += [
            f"{path}:{node.lineno} uses {name}"
            for node in ast.walk(_tree(path))
            if isinstance(node, ast.Attribute) and IMPURE_CALLS.match(name := ast.unparse(node))
        ]
    assert not faults, "the core is given what it needs as arguments:\n" + "\n".join(faults)


def test_the_core_opens_no_file_but_those_of_packages() -> None:
    imported = {
        path.name: f"{path}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in python_files(*CORES)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and FILE_CALLS.search(ast.unparse(node.func))
    }
    other = [call for path, call in imported.items() if path not in READ_PACKAGES]
    assert not other, "a floor above reads the file, the core parses its text:\n" + "\n".join(other)
    assert not READ_PACKAGES - imported.keys(), "needs no exception any more"


def test_each_folder_imports_only_what_is_there_when_it_runs() -> None:
    faults = [
        f"{path} imports {name}"
        for folder, forbidden in FORBIDDEN.items()
        for path in python_files()
        if path.is_relative_to(folder)
        for name in sorted(forbidden & _roots(path))
    ]
    faults += [
        f"{IMAGE_STDLIB_ONLY} imports {name}, which is not of the standard library"
        for name in sorted(_roots(Path(IMAGE_STDLIB_ONLY)) - sys.stdlib_module_names)
    ]
    assert not faults, "\n".join(faults)


def test_no_modules_import_each_other_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports in functions and for types count. import-linter holds the same of whole packages."""
    for folder in PACKAGES_APART:
        monkeypatch.syspath_prepend(str(ROOT / folder))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    faults = []
    while circle := _circle(imports):
        faults.append(" -> ".join(circle))
        imports[circle[0]].discard(circle[1])
    assert not faults, "move what they share to one of them, or below both:\n" + "\n".join(faults)


def _circle(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]  # it gives what is imported first
    return []


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


@cache
def _tree(path: Path) -> ast.AST:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in _imports(_tree(path))}
