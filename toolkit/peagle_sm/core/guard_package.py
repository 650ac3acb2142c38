"""The Lambdas' package as bytes: which files go in, their digest, their zip; the same for the same files."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib.resources.abc import Traversable

_NOT_ZONES = frozenset(
    {
        "iso3166.tab",
        "leapseconds",
        "tzdata.zi",
        "zone.tab",
        "zone1970.tab",
        "zonenow.tab",
        "leap-seconds.list",
    }
)
"""What tzdata carries beside the zones; zoneinfo does not read it."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest date that a zip can hold: a file's own date would make each build another package."""
_READABLE = 0o644 << 16


def belongs(path: str) -> bool:
    """Whether a file of the runtime's folder or of tzdata's goes into the package."""
    parts = path.split("/")
    return (
        "__pycache__" not in parts
        and not any(part.startswith(".") for part in parts)
        and not path.endswith((".pyc", ".md"))
    )


def digest(files: Mapping[str, bytes]) -> str:
    """Return 16 hex digits over names and contents.

    The zip itself is not hashed: another version of zlib would give it other bytes.
    """
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0{len(files[path])}\0".encode())
        total.update(files[path])
    return total.hexdigest()[:16]


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip with the files in order of name, without dates and owners."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = _READABLE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path])
    return buffer.getvalue()


def object_key(digest_of_files: str) -> str:
    """Return the key under which `peagle-sm guard install` uploads a package."""
    return f"guard/{digest_of_files}.zip"


def files_under(root: Traversable, prefix: str = "") -> dict[str, bytes]:
    """Return the contents of a folder's files by path, without what does not belong into the package."""
    found: dict[str, bytes] = {}
    for entry in root.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found.update(files_under(entry, f"{path}/"))
        elif belongs(path):
            found[path] = entry.read_bytes()
    return found


def package_files(runtime: Traversable, tzdata: Traversable) -> dict[str, bytes]:
    """Return the whole package: the guard's runtime, and the time zones, which an image may lack."""
    files = files_under(runtime)
    zones = files_under(tzdata / "zoneinfo", "tzdata/zoneinfo/")
    files |= {path: content for path, content in zones.items() if path.rpartition("/")[2] not in _NOT_ZONES}
    files["tzdata/__init__.py"] = (tzdata / "__init__.py").read_bytes()
    files["tzdata/zones"] = (tzdata / "zones").read_bytes()
    return files
