"""`import peagle_sm` and `peagle-sm --help` cost next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("boto3", "botocore", "pydantic", "rich", "yaml", "aiohttp", "moto", "numpy", "asyncio", "jinja2")
MOST_MODULES_FOR_HELP = 130

PRINT_MODULES = f"""
import json, sys
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)
"""


def _printed(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=os.sep
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert isinstance(loaded, list)
    return loaded


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert _printed("import peagle_sm" + PRINT_MODULES) == []


def test_every_public_name_comes_without_a_client() -> None:
    every = "import peagle_sm\nfor name in peagle_sm.__all__:\n    getattr(peagle_sm, name)\n"
    assert set(_printed(every + PRINT_MODULES)) <= {"pydantic", "yaml", "asyncio"}


@pytest.mark.parametrize(
    ("use_case", "most"),
    [
        ("peagle_sm.service.lifecycle.deployment", 84),
        ("peagle_sm.service.lifecycle.updating", 86),
        ("peagle_sm.service.lifecycle.resuming", 84),
        ("peagle_bench.benchmark.run", 80),
    ],
)
def test_a_use_case_loads_few_modules_of_the_project(use_case: str, most: int) -> None:
    program = f"""
import json, sys
import {use_case}
print(json.dumps([name for name in sys.modules if name.startswith("peagle_")]), file=sys.stderr)
"""
    loaded = _printed(program)
    assert len(loaded) <= most, f"{len(loaded)} modules: {loaded}"


def test_help_loads_click_and_little_else() -> None:
    """118 modules take 70 ms of CPU on quiet cores; a time would depend on the machine."""
    program = """
import atexit, json, runpy, sys
atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))
sys.argv = ["peagle-sm", "--help"]
runpy.run_module("peagle_sm", run_name="__main__")
"""
    loaded = _printed(program)
    assert len(loaded) <= MOST_MODULES_FOR_HELP, f"{len(loaded)} modules: {loaded}"
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert {name for name in packages if not name.startswith("_")} == {"click", "peagle_sm"}
