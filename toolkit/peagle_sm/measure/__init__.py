"""Measure endpoints: bench, compare, tune and verify, their results files and the report.

`results` holds the records that every command writes, `workloads` the prompts, `load` the load client. Each
command has a package (`benchmark`, `compare`, `tune`, `verify`); `report` reads results files; `notebook`
offers the commands as Python calls. This module imports nothing heavy: the command line and the notebook
calls check here first that the extra `measure` is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from peagle_sm.core.errors import NotFound
from peagle_sm.core.words import install_command

PACKAGES = ("aiohttp", "uvloop", "psutil")


def need_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Check that the packages of the extra `measure` are installed.

    Raises:
        NotFound: a package of the extra is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise NotFound(
            f"measuring needs the Python packages {' and '.join(missing)}; not installed",
            next_step=install_command("measure"),
            details={"missing": missing},
        )


def results_file(*words: str) -> Path:
    """Return the default results file: ``results/bench-NAME-20261120T150000Z.jsonl``."""
    name = "".join(each if each.isalnum() or each in "-_" else "-" for each in "-".join(words))
    return Path("results") / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
