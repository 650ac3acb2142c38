"""Checksums as the local S3 takes and tells them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server

PARTS = [b"x" * (5 * 2**20), b"y" * 100]


def b64(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


@pytest.fixture(scope="module")
def s3(server: Server) -> Any:
    client = server.client("s3")
    client.create_bucket(Bucket="checksums")
    return client


def test_an_object_tells_its_checksum_and_a_wrong_one_is_refused(s3: Any) -> None:
    place = {"Bucket": "checksums", "Key": "one", "ChecksumAlgorithm": "SHA256"}
    s3.put_object(**place, Body=b"hello", ChecksumSHA256=b64(b"hello"))
    head_object = s3.head_object(Bucket="checksums", Key="one", ChecksumMode="ENABLED")
    assert head_object["ChecksumSHA256"] == b64(b"hello")
    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(**place, Body=b"hello", ChecksumSHA256=b64(b"other"))


def test_an_object_of_parts_tells_the_checksum_of_their_checksums_and_their_number(s3: Any) -> None:
    place = {"Bucket": "checksums", "Key": "parts"}
    created = s3.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")
    upload = {**place, "UploadId": created["UploadId"]}
    done = []
    for number, part in enumerate(PARTS, 1):
        answer = s3.upload_part(**upload, PartNumber=number, Body=part, ChecksumSHA256=b64(part))
        done.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": b64(part)})
    with pytest.raises(ClientError, match="BadDigest"):
        s3.upload_part(**upload, PartNumber=3, Body=b"z", ChecksumSHA256=b64(b"other"))
    listed = s3.list_parts(**upload)["Parts"]
    assert [row["ChecksumSHA256"] for row in listed] == [b64(part) for part in PARTS]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})
    whole = b64(b"".join(hashlib.sha256(part).digest() for part in PARTS)) + "-2"
    assert s3.head_object(**place, ChecksumMode="ENABLED")["ChecksumSHA256"] == whole


def test_parts_without_an_algorithm_tell_none(s3: Any) -> None:
    place = {"Bucket": "checksums", "Key": "plain"}
    created = s3.create_multipart_upload(**place)
    s3.upload_part(**place, UploadId=created["UploadId"], PartNumber=1, Body=b"x")
    assert "ChecksumSHA256" not in s3.list_parts(**place, UploadId=created["UploadId"])["Parts"][0]
