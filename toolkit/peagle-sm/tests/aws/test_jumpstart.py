"""Documents of a bucket: read once while they stay the same, whole or not at all, and what is absent told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.aws.readers.jumpstart import MANIFEST_FOLDER, SPECS_FOLDER, DocumentCache
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import NotFound, SpecError
from tests.local.serving import Server

_numbers = itertools.count(1)


@pytest.fixture
def session(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


@pytest.fixture
def bucket(server: Server) -> str:
    name = f"shelf-{next(_numbers)}"
    server.client("s3").create_bucket(Bucket=name)
    server.client("s3").put_object(Bucket=name, Key="models_manifest.json", Body=b"[]")
    return name


def put(server: Server, bucket: str, content: bytes) -> None:
    server.client("s3").put_object(Bucket=bucket, Key="models_manifest.json", Body=content)


def test_a_document_is_transferred_again_only_when_it_changed(
    server: Server, session: Session, bucket: str, tmp_path: Path
) -> None:
    documents = DocumentCache(session, bucket, keep=tmp_path)
    first, second = documents.read("models_manifest.json"), documents.read("models_manifest.json")
    assert (first.kept, second.kept) == (False, True)
    assert (first.content, first.sha256, first.etag) == (second.content, second.sha256, second.etag)
    put(server, bucket, b"[1]")
    assert (documents.read("models_manifest.json").content, documents.read("models_manifest.json").kept) == (
        b"[1]",
        True,
    )


def test_a_damaged_copy_is_as_good_as_none(session: Session, bucket: str, tmp_path: Path) -> None:
    documents = DocumentCache(session, bucket, keep=tmp_path)
    documents.read("models_manifest.json")
    for path in (tmp_path / bucket).iterdir():
        path.write_bytes(b"[")
    assert documents.read("models_manifest.json").content == b"[]"
    assert documents.read("models_manifest.json").kept


def test_without_a_place_for_copies_it_still_reads(session: Session, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (
        DocumentCache(session, bucket, keep=tmp_path / "file").read("models_manifest.json").content == b"[]"
    )
    assert not DocumentCache(session, bucket).read("models_manifest.json").kept


def test_what_is_absent_is_told(session: Session, bucket: str) -> None:
    with pytest.raises(NotFound, match=f"s3://{bucket}/specs/x.json does not exist"):
        DocumentCache(session, bucket).read("specs/x.json")
    with pytest.raises(
        NotFound, match="bucket jumpstart-nowhere does not exist: region us-east-1 has no JumpStart"
    ):
        DocumentCache(session, "jumpstart-nowhere").read("models_manifest.json")


def test_folders_take_the_bucket_s_place_as_with_the_sdk(session: Session, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "s" / "specs").mkdir(parents=True)
    (tmp_path / "m" / "models_manifest.json").write_text("[]")
    (tmp_path / "s" / "specs" / "x.json").write_text("{}")
    environ = {MANIFEST_FOLDER: str(tmp_path / "m"), SPECS_FOLDER: str(tmp_path / "s")}

    def documents(given: dict[str, Any]) -> DocumentCache:
        return DocumentCache(session, "unused", environ=given)

    found = documents(environ).read("models_manifest.json"), documents(environ).read("specs/x.json")
    assert [(one.content, one.etag) for one in found] == [(b"[]", None), (b"{}", None)]
    with pytest.raises(NotFound, match="cannot be read"):
        documents(environ).read("specs/y.json")
    with pytest.raises(SpecError, match="is outside the folder"):
        documents(environ).read("../m/models_manifest.json")
    with pytest.raises(NotFound, match="bucket unused does not exist"):
        documents({MANIFEST_FOLDER: str(tmp_path / "m")}).read("specs/x.json")
