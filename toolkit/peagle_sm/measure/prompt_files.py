"""Files of prompts: read whole, JSON objects line by line, gzip where they are packed."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.utf8 import utf8_text

_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """The file's content, unpacked.

    Raises:
        SpecError: it does not exist, is a directory, cannot be read, or is a broken archive.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}", next_step="check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{path} cannot be read: {error}", next_step="check the file") from error


def sha256_of(*contents: bytes) -> str:
    """SHA-256 of one content, or of the digests of several."""
    digests = [hashlib.sha256(content) for content in contents]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def json_lines(content: bytes, origin: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, object) of each line that is not empty.

    Raises:
        SpecError: a line is not a JSON object; the message has its number.
    """
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(utf8_text(line, origin, number).removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            raise SpecError(
                f"{origin}, line {number}: not JSON: {error}",
                next_step="write one JSON object a line (JSON lines)",
            ) from error
        if not isinstance(value, dict):
            raise SpecError(
                f"{origin}, line {number}: found {type(value).__name__}, expected a JSON object",
                next_step="write one JSON object a line (JSON lines)",
            )
        yield number, value


def empty(origin: str) -> SpecError:
    """The error for a workload without a prompt."""
    return SpecError(f"{origin} holds no prompt", next_step="give a workload with at least one prompt")
