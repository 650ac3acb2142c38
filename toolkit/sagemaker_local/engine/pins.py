"""Lock files as pip reads them: one pin with its hashes may stand on several lines."""

from __future__ import annotations

import re
from pathlib import Path


def requirements(lock: Path) -> list[str]:
    """Return a lock file's requirements, each on one line with its hashes, without the comments."""
    text = re.sub(r"\\\n", " ", lock.read_text(encoding="utf-8"))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def version_in(lock: Path, name: str) -> str | None:
    """Return the version that a lock file pins for a package, None where it does not name it."""
    for requirement in requirements(lock):
        if requirement.startswith(f"{name}=="):
            return requirement.removeprefix(f"{name}==").split()[0]
    return None
