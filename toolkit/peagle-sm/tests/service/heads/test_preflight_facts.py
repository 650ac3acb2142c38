"""What a preflight reads beside the weights in S3: generation defaults, and a head's context and engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.aws.readers import resources
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.resolve import resolve
from tests.core.support import AWS, CONTAINER, spec_of
from tests.heads import head_config, write_head


@pytest.fixture
def session(local: Session) -> Session:
    return local


def test_the_facts_of_weights_in_s3(session: Session, bucket: str, tmp_path: Path) -> None:
    s3 = session.client("s3")
    head = write_head(tmp_path, config=head_config(max_position_embeddings=100, norm_output=True))
    for file in head.iterdir():
        s3.put_object(Bucket=bucket, Key=f"facts/head/{file.name}", Body=file.read_bytes())
    s3.put_object(Bucket=bucket, Key="facts/target/generation_config.json", Body=b'{"min_p": 0.05}')
    text = CONTAINER.replace("s3://bucket/", f"s3://{bucket}/facts/")
    draft = resolve(spec_of(text), AWS, load_catalog())
    assert resources.generation(session, draft).values == {"min_p": 0.05}
    look = resources.head(session, draft)
    assert look is not None
    assert (look.by, look.context, look.vllm) == ("files", 100, "0.22.0")
    assert "context" not in {fault.check for fault in look.faults}


@pytest.mark.parametrize("content", [b"[1]", b"not JSON"])
def test_generation_defaults_that_are_none(session: Session, bucket: str, content: bytes) -> None:
    s3 = session.client("s3")
    s3.put_object(Bucket=bucket, Key="strange/target/generation_config.json", Body=content)
    draft = resolve(
        spec_of(CONTAINER.replace("s3://bucket/", f"s3://{bucket}/strange/")), AWS, load_catalog()
    )
    assert resources.generation(session, draft).values == {}
