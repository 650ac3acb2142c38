"""A function's zip file as a folder, unpacked once for each content."""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path


def unpacked(code: bytes, directory: Path) -> Path:
    """Return the folder with a zip file's content, below ``directory``; create it if needed. Blocks.

    Raises:
        ValueError: it is no zip file, or an entry would lie outside of the folder.
    """
    folder = directory / hashlib.sha256(code).hexdigest()[:32]
    if folder.is_dir():
        return folder
    directory.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=directory, prefix="unpacking-"))
    try:
        _extract(code, draft)
        with suppress(OSError):  # two first invocations at once: whoever comes second finds the folder
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _extract(code: bytes, draft: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(code)) as archive:
            for name in archive.namelist():
                if not (draft / name).resolve().is_relative_to(draft.resolve()):
                    raise ValueError(f"the deployment package has an entry outside of its folder: {name}")
            archive.extractall(draft)
    except zipfile.BadZipFile as error:
        raise ValueError(f"the deployment package is not a zip file ({len(code)} bytes): {error}") from error
