"""Subjects of the security rules: templates of `cdk synth`, image files, locks, weights, all text."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib.hash_locks import ROOT, lock_files
from scripts.lib.locks import unhashed

EXAMPLES = ROOT / "docs" / "examples"
WEIGHTS = ROOT / "toolkit" / "sagemaker-local" / "sagemaker_local" / "weights"
CONTAINER = ROOT / "container"


class SynthFailed(Exception):
    """Error: the CDK app made no templates; the message is its own."""


@dataclass(frozen=True)
class Subjects:
    """Subjects of all rules; each mapping is by the name that a finding begins with."""

    templates: Mapping[str, Mapping[str, Any]]
    dockerfiles: Mapping[str, str]
    unhashed: Mapping[str, list[str]]
    weights: Mapping[str, Path]
    texts: list[tuple[Path, str]]
    refuses: tuple[Mapping[str, object], Mapping[str, object]] | None


def collect(templates: Mapping[str, Mapping[str, Any]]) -> Subjects:
    """Read the checkout."""
    return Subjects(
        templates,
        {
            path.relative_to(ROOT).as_posix(): path.read_text()
            for path in sorted(CONTAINER.glob("Dockerfile*"))
            if path.suffix != ".dockerignore"
        },
        {path.relative_to(ROOT).as_posix(): unhashed(path.read_text()) for path in lock_files()},
        {path.relative_to(ROOT).as_posix(): path for path in sorted(WEIGHTS.iterdir()) if path.is_dir()},
        _texts(),
        _refused_by_the_image(),
    )


def synthesised() -> dict[str, Any]:
    """Return the templates of the guard and of every example, made by the CDK app itself; about 10 s.

    Raises:
        SynthFailed: there are none.
    """
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context["spec"] = ",".join(str(path) for path in sorted(EXAMPLES.glob("*.yaml")))
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "CDK_VALIDATION": "false",
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_OUTDIR": folder,
        }
        ran = subprocess.run(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise SynthFailed(ran.stderr.strip())
        return {
            path.name.removesuffix(".template.json"): json.loads(path.read_text())
            for path in sorted(Path(folder).glob("*.template.json"))
        }


def _texts() -> list[tuple[Path, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = []
    for name in filter(None, listed):
        try:
            found.append((Path(name), (ROOT / name).read_text(encoding="utf-8")))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
    return found


def _refused_by_the_image() -> tuple[Mapping[str, object], Mapping[str, object]] | None:
    """Return the flags and variables that peagle-sm's container refuses; None if it has no list."""
    if not (CONTAINER / "peagle_gate" / "startup.py").is_file():
        return None
    if str(CONTAINER) not in sys.path:
        sys.path.insert(0, str(CONTAINER))
    flags = importlib.import_module("peagle_gate.startup")
    return flags.FLAGS, flags.VARIABLES
