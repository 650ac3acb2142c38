"""The Lambdas' package as bytes: which files go in, their digest, their zip; the same for the same files."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution
from importlib.resources.abc import Traversable

from peagle_sm.core.errors import PeagleError

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


_SDK = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
"""boto3 with all that it needs. Lambda's own is some months old and may lack a field that we send."""
SERVICES = frozenset(
    {
        "application-autoscaling",
        "cloudformation",
        "cloudwatch",
        "dynamodb",
        "lambda",
        "resourcegroupstaggingapi",
        "sagemaker",
        "scheduler",
        "sns",
    }
)
"""The services that the guard calls; botocore has the models of 400 others."""
_LICENCES = ("LICENSE", "LICENCE", "NOTICE")


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


def sdk_files() -> dict[str, bytes]:
    """Return boto3 and what it needs, of the versions that are installed here.

    Raises:
        PeagleError: one of them was installed by something that keeps no list of its files.
    """
    found: dict[str, bytes] = {}
    for name in _SDK:
        installed = distribution(name).files
        if not installed:
            raise PeagleError(
                f"the files of {name} cannot be listed: its installation has no RECORD",
                next_step="Install peagle-sm with pip into a virtual environment and run the command again.",
            )
        for entry in installed:
            path = entry.as_posix()
            if _of_the_sdk(path):
                found[path] = entry.read_binary()
    return found


def _of_the_sdk(path: str) -> bool:
    folder, *rest = path.split("/")
    if folder.endswith(".dist-info"):
        return rest[-1].upper().startswith(_LICENCES)
    if folder == ".." or not belongs(path):
        return False
    if folder == "botocore" and rest[0] == "data" and len(rest) > 2:
        return rest[1] in SERVICES and not rest[-1].startswith("examples")
    if folder == "boto3" and rest[0] in ("data", "examples"):
        return False  # resources and documentation, which the guard does not use
    return path.endswith((".py", ".json", ".json.gz", ".pem"))


def package_files(runtime: Traversable, tzdata: Traversable) -> dict[str, bytes]:
    """Return the whole package: the guard's runtime, the SDK, and the time zones, which an image may lack."""
    files = files_under(runtime) | sdk_files()
    zones = files_under(tzdata / "zoneinfo", "tzdata/zoneinfo/")
    files |= {path: content for path, content in zones.items() if path.rpartition("/")[2] not in _NOT_ZONES}
    files["tzdata/__init__.py"] = (tzdata / "__init__.py").read_bytes()
    files["tzdata/zones"] = (tzdata / "zones").read_bytes()
    return files
