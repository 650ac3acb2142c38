"""One small public file over HTTPS, checked against a known sha256."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from peagle_sm.core.catalog.catalog import Vocabulary
from peagle_sm.core.errors import ServiceFault

TIMEOUT_S = 60


def fetch(file: Vocabulary, directory: Path, got: Callable[[int], None] = lambda _: None) -> None:
    """Bring the file into ``directory``; what an earlier run brought is not fetched again.

    Raises:
        ServiceFault: the address does not answer, or sends another file.
    """
    path = directory / file.name
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256:
        got(file.size)
        return
    by_hand = f"Download it where {file.url} can be reached, put it at {path}, and run the command again."
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response:
            content = response.read(file.size + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise ServiceFault(f"{file.url} cannot be read: {error}", next_step=by_hand) from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ServiceFault(
            f"{file.url} sent another file: found sha256 {found}, expected {file.sha256}", next_step=by_hand
        )
    directory.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)
    got(file.size)
