"""What every measurement needs before it begins: the extra's packages, and a place for its results.

Imports nothing heavy: the command line and the notebooks ask here first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from peagle_sm.core.errors import NotFound
from peagle_sm.core.extras import install_command

PACKAGES = ("aiohttp", "uvloop", "psutil")


def need_packages(packages: Sequence[str] = PACKAGES) -> None:
    """Say what to install when the extra `measure` is not there.

    Raises:
        NotFound: a package of the extra is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise NotFound(
            f"measuring needs {' and '.join(missing)}, which this Python does not have",
            next_step=install_command("measure"),
            details={"missing": missing},
        )


def results_file(*words: str) -> Path:
    """``results/bench-NAME-20261120T150000Z.jsonl`` of ``("bench", "NAME")``: where nobody named a file."""
    name = "".join(each if each.isalnum() or each in "-_" else "-" for each in "-".join(words))
    return Path("results") / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
