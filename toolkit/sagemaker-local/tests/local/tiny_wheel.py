"""A folder as a package index, with one wheel in it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path


def tiny_wheel(folder: Path) -> str:
    """Write the wheel of ``tiny-thing`` 1.0, an empty module; return its hash."""
    path, facts = folder / "tiny_thing-1.0-py3-none-any.whl", "tiny_thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_thing.py", "")
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()
