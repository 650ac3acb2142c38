"""`import peagle_sm` and `peagle-sm --help` cost next to nothing (what help imports: tests/cli)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("boto3", "botocore", "pydantic", "rich", "yaml", "aiohttp", "moto", "numpy", "asyncio")
MAX_HELP_CPU_MS = 100.0

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
        ("service.lifecycle.deployment", 64),
        ("service.lifecycle.updating", 66),
        ("service.lifecycle.resuming", 66),
        ("measure.benchmark.run", 65),
    ],
)
def test_a_use_case_loads_few_modules_of_the_project(use_case: str, most: int) -> None:
    program = f"""
import json, sys
import peagle_sm.{use_case}
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "peagle_sm"]), file=sys.stderr)
"""
    loaded = _printed(program)
    assert len(loaded) <= most, f"{len(loaded)} modules: {loaded}"


def test_help_takes_less_than_100_ms_of_cpu() -> None:
    command = Path(sys.executable).with_name("peagle-sm")
    assert command.is_file(), "the console script is missing: pip install -e ."
    spent = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([command, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    # The least of several: what the command costs, not what else the machine was doing.
    assert min(spent) < MAX_HELP_CPU_MS, f"CPU ms of {len(spent)} runs: {[round(ms) for ms in spent]}"
