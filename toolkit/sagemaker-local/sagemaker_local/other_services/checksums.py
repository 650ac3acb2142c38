"""S3's checksums, which moto does not verify: refuse mismatches, and return each part's checksum."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

_MARK = "peagle_checksums"
_HEADER = "x-amz-checksum-sha256"


def lay_s3_checksums() -> None:
    """Add the rules to moto, once in a process."""
    from moto.s3.models import FakeMultipart
    from moto.s3.responses import S3Response

    if getattr(S3Response, _MARK, False):
        return
    S3Response.put_object = _checked(S3Response.put_object)
    S3Response.upload_part = _checked(S3Response.upload_part)
    S3Response.head_object = _numbered(S3Response.head_object)
    S3Response.list_parts = _listed(S3Response.list_parts, FakeMultipart)
    setattr(S3Response, _MARK, True)


def _checked(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Refuse a body that is not what its checksum says."""
    from moto.s3.exceptions import S3ClientError

    def handler(self: Any) -> Any:
        checksum = self.headers.get(_HEADER)
        if checksum and checksum != sha256_of(self.body or b""):
            raise S3ClientError(
                "BadDigest", "The SHA256 you specified did not match the calculated checksum."
            )
        return take(self)

    return handler


def _numbered(look: Callable[..., Any]) -> Callable[..., Any]:
    """Have HeadObject return the checksum of a multipart object with its number of parts, as GetObject."""

    def handler(self: Any, bucket_name: str, query: dict[str, Any], key_name: str, headers: Any) -> Any:
        status, answer, body = look(self, bucket_name, query, key_name, headers)
        if answer.get(_HEADER):
            key = self.backend.head_object(
                bucket_name, key_name, version_id=query.get("versionId", [None])[0]
            )
            if key.checksum_type == "COMPOSITE":
                answer[_HEADER] = f"{key.checksum_value}-{key.checksum_parts}"
        return status, answer, body

    return handler


def _listed(show: Callable[[Any], Any], kind: Any) -> Callable[[Any], Any]:
    """Have ListParts return each part's checksum if the upload uses that algorithm."""

    def handler(self: Any) -> Any:
        upload = self.backend.get_bucket(self.bucket_name).multiparts.get(self._get_param("uploadId"))
        serialize = self.serialized

        def with_checksums(result: Any) -> Any:
            for row in result.result["Parts"]:
                row["ChecksumSHA256"] = sha256_of(upload.parts[row["PartNumber"]].value)
            return serialize(result)

        if isinstance(upload, kind) and upload.metadata.get("x-amz-checksum-algorithm") == "SHA256":
            self.serialized = with_checksums
        return show(self)

    return handler


def sha256_of(body: bytes | str) -> str:
    """The checksum as S3 writes it."""
    return base64.b64encode(
        hashlib.sha256(body.encode() if isinstance(body, str) else body).digest()
    ).decode()
