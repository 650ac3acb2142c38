"""Documents of JumpStart's bucket, with a local cache that is checked by ETag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.files import CannotWrite, write_file
from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.core.jumpstart.documents import MANIFEST_KEY

# Variables of the SageMaker SDK: folders to use instead of the bucket; set both or neither.
MANIFEST_FOLDER = "AWS_JUMPSTART_MANIFEST_LOCAL_ROOT_DIR_OVERRIDE"
SPECS_FOLDER = "AWS_JUMPSTART_SPECS_LOCAL_ROOT_DIR_OVERRIDE"
_ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "404"})
_SAME = frozenset({"304", "NotModified"})


@dataclass(frozen=True)
class Fetched:
    """One document; ``etag`` is None from a folder, ``kept`` True from the cache."""

    content: bytes
    sha256: str
    etag: str | None
    kept: bool = False


class DocumentCache:
    """Reader of a region's documents that downloads only changed documents."""

    def __init__(
        self,
        session: Session,
        bucket: str,
        *,
        keep: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Take the bucket and the session; ``keep`` is the cache folder, None: no cache."""
        self._session = session
        self.bucket = bucket
        self._keep = keep / bucket if keep else None
        self._folders = _folders(environ or {})

    def read(self, key: str) -> Fetched:
        """Return a document.

        Raises:
            CredentialsError: no credentials, or no permission to read the bucket.
            NotFound: the bucket or the document does not exist.
            ServiceFault: S3 failed.
        """
        if self._folders is not None:
            return _from_folder(self._folders[0 if key == MANIFEST_KEY else 1], key)
        copy = _cached(self._keep, key)
        asked: dict[str, Any] = {"Bucket": self.bucket, "Key": key}
        if copy is not None:
            asked["IfNoneMatch"] = copy.etag
        try:
            with aws_errors("GetObject", self._session.local_url):
                answer = self._session.client("s3").get_object(**asked)
                content, etag = answer["Body"].read(), str(answer["ETag"])
        except ServiceFault as error:
            if copy is not None and error.code in _SAME:
                return copy
            raise self._absent(error, key) if error.code in _ABSENT else error from error
        found = Fetched(content, _sha256(content), etag)
        _write_cache(self._keep, key, found)
        return found

    def _absent(self, error: ServiceFault, key: str) -> NotFound:
        if error.code == "NoSuchBucket":
            return NotFound(
                f"the bucket {self.bucket} does not exist: region {self._session.region} has no JumpStart",
                next_step="Give another --region, or set source: container in the spec.",
            )
        return NotFound(
            f"s3://{self.bucket}/{key} does not exist",
            next_step="Run `peagle-sm lock --upgrade SPEC` to use JumpStart's present version.",
        )


def _folders(environ: Mapping[str, str]) -> tuple[Path, Path] | None:
    named = environ.get(MANIFEST_FOLDER), environ.get(SPECS_FOLDER)
    if not (named[0] and named[1] and Path(named[0]).is_dir() and Path(named[1]).is_dir()):
        return None
    return Path(named[0]), Path(named[1])


def _from_folder(folder: Path, key: str) -> Fetched:
    path = folder / key
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SpecError(
            f"{key!r} is outside the folder {folder}", next_step=f"Correct the manifest in {MANIFEST_FOLDER}."
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}",
            next_step=f"Correct or unset {MANIFEST_FOLDER} and {SPECS_FOLDER}.",
        ) from error
    return Fetched(content, _sha256(content), None)


def _cached(keep: Path | None, key: str) -> Fetched | None:
    """Return the cached copy; None if it is missing or damaged."""
    if keep is None:
        return None
    path = _path(keep, key)
    try:
        content = path.read_bytes()
        about = json.loads(path.with_name(path.name + ".about").read_text(encoding="utf-8"))
        found = Fetched(content, str(about["sha256"]), str(about["etag"]), kept=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.sha256 == _sha256(content) else None


def _write_cache(keep: Path | None, key: str, found: Fetched) -> None:
    if keep is None:
        return
    path = _path(keep, key)
    about = json.dumps({"etag": found.etag, "sha256": found.sha256}).encode()
    with suppress(CannotWrite):  # the cache only saves time
        write_file(path, found.content, parents=True)
        write_file(path.with_name(path.name + ".about"), about)


def _path(keep: Path, key: str) -> Path:
    return keep / hashlib.sha256(key.encode()).hexdigest()[:32]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
