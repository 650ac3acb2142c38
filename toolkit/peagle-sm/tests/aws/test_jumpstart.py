"""Documents of a bucket, and what is absent."""

from __future__ import annotations

import pytest

from peagle_sm.aws.readers.jumpstart import read_document
from peagle_sm.core.errors import NotFound
from tests.local.serving import Server, local_session


def test_a_document_and_what_is_absent(server: Server) -> None:
    session = local_session(server)
    server.client("s3").create_bucket(Bucket="shelf")
    server.client("s3").put_object(Bucket="shelf", Key="models_manifest.json", Body=b"[]")
    assert read_document(session, "shelf", "models_manifest.json").content == b"[]"
    with pytest.raises(NotFound, match=r"s3://shelf/specs/x\.json does not exist"):
        read_document(session, "shelf", "specs/x.json")
    with pytest.raises(
        NotFound, match="bucket jumpstart-nowhere does not exist: region us-east-1 has no JumpStart"
    ):
        read_document(session, "jumpstart-nowhere", "models_manifest.json")
