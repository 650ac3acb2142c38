"""Documents of JumpStart's bucket: read from S3, kept on this machine, and asked for again by their ETag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.core.files import CannotWrite, write_file
from peagle_sm.core.jumpstart.documents import MANIFEST_KEY

# The SageMaker SDK's own names: folders that take the bucket's place, both or neither.
MANIFEST_FOLDER = "AWS_JUMPSTART_MANIFEST_LOCAL_ROOT_DIR_OVERRIDE"
SPECS_FOLDER = "AWS_JUMPSTART_SPECS_LOCAL_ROOT_DIR_OVERRIDE"
_ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "404"})
_SAME = frozenset({"304", "NotModified"})


@dataclass(frozen=True)
class Fetched:
    """One document; ``etag`` is None where it came from a folder, ``kept`` True for this machine's copy."""

    content: bytes
    sha256: str
    etag: str | None
    kept: bool = False


class DocumentCache:
    """Reads a region's documents, each over the network once as long as it stays the same."""

    def __init__(
        self,
        session: Session,
        bucket: str,
        *,
        keep: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Read ``bucket`` by ``session``; ``keep`` is the folder of the copies, None keeps none."""
        self._session = session
        self.bucket = bucket
        self._keep = keep / bucket if keep else None
        self._folders = _folders(environ or {})

    def read(self, key: str) -> Fetched:
        """Return a document.

        Raises:
            CredentialsError: no credentials, or none that may read the bucket.
            NotFound: there is no such bucket or document.
            ServiceFault: S3 failed.
        """
        if self._folders is not None:
            return _from_folder(self._folders[0 if key == MANIFEST_KEY else 1], key)
        copy = _kept(self._keep, key)
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
        _remember(self._keep, key, found)
        return found

    def _absent(self, error: ServiceFault, key: str) -> NotFound:
        if error.code == "NoSuchBucket":
            return NotFound(
                f"there is no bucket {self.bucket}: JumpStart is not in region {self._session.region}",
                next_step="Give another --region, or use source: container.",
            )
        return NotFound(
            f"s3://{self.bucket}/{key} is not there",
            next_step="Run `peagle-sm lock --upgrade SPEC` to move to what JumpStart has now.",
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
            f"{key!r} leaves the folder {folder}", next_step=f"Correct the manifest in {MANIFEST_FOLDER}."
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}",
            next_step=f"Correct or unset {MANIFEST_FOLDER} and {SPECS_FOLDER}.",
        ) from error
    return Fetched(content, _sha256(content), None)


def _kept(keep: Path | None, key: str) -> Fetched | None:
    """The copy on this machine, if it is whole; a damaged one is as good as none."""
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


def _remember(keep: Path | None, key: str, found: Fetched) -> None:
    if keep is None:
        return
    path = _path(keep, key)
    about = json.dumps({"etag": found.etag, "sha256": found.sha256}).encode()
    with suppress(CannotWrite):  # a copy only saves time
        write_file(path, found.content, parents=True)
        write_file(path.with_name(path.name + ".about"), about)


def _path(keep: Path, key: str) -> Path:
    return keep / hashlib.sha256(key.encode()).hexdigest()[:32]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
