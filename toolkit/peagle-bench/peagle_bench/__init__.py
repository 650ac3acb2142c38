"""Measure endpoints: bench, compare, tune and verify, their results files and the report.

`results` holds the records that every command writes, `workloads` the prompts, `load` the load client. Each
command has a package (`benchmark`, `compare`, `tune`, `verify`); `report` reads results files; `notebook`
offers the commands as Python calls. This module imports nothing heavy.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path


def results_file(*words: str) -> Path:
    """Return the default results file: ``results/bench-NAME-20261120T150000Z.jsonl``."""
    name = "".join(each if each.isalnum() or each in "-_" else "-" for each in "-".join(words))
    return Path("results") / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
