"""Prompts that are not ours to ship: fetched when they are first asked for, kept in the cache, checked."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.core.files import write_file

TIMEOUT_S = 60
Fetch = Callable[[str], bytes]


def fetch_url(url: str) -> bytes:
    """The document at an https address.

    Raises:
        ServiceFault: it cannot be had.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "peagle-sm"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return bytes(response.read())
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise ServiceFault(
            f"{url} could not be fetched: {error}",
            operation="fetch",
            next_step="fetch it where there is a network, and give the file with --workload-file",
        ) from error


def cached(name: str, make: Callable[[], bytes], directory: Path) -> tuple[bytes, Path]:
    """The content of ``name`` in the cache; made and put there (whole or not at all) when it is not."""
    path = directory / name
    if path.is_file():
        return path.read_bytes(), path
    content = make()
    write_file(path, content, parents=True)
    return content, path


def demand_sha256(content: bytes, wanted: str, origin: str) -> None:
    """Raise SpecError unless the content is the published one."""
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise SpecError(
            f"{origin}: its SHA-256 is {found}, the published file's is {wanted}",
            next_step="the file was changed or cut: fetch it again; to measure on a changed file all the"
            " same, give it with --workload-file",
            details={"found": found, "allowed": wanted},
        )
