"""Recorded traffic and data capture below an S3 prefix, on the local server's S3."""

from __future__ import annotations

import gzip
import json

import pytest

from peagle_bench.workloads import load_workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, SpecError
from tests.traffic.samples import CHAT, line


@pytest.fixture
def session(local: Session) -> Session:
    return local


def test_a_half_written_prefix_is_read_with_a_note(session: Session, bucket: str) -> None:
    s3 = session.client("s3")
    whole = gzip.compress(line(1) + line(2), mtime=0)
    captured = {
        "captureData": {"endpointInput": {"data": json.dumps(CHAT), "encoding": "JSON"}},
        "eventMetadata": {"eventId": "event"},
    }
    objects = {
        "x/e/2026/11/24/10/a.jsonl.gz": whole,
        "x/e/2026/11/24/11/b.jsonl.gz": whole[:-15],
        "x/e/AllTraffic/2026/11/24/11/c.jsonl": json.dumps(captured).encode() + b'\n{"captureData": {"end',
        "x/readme.txt": b"not read",
        "x-2/other.jsonl.gz": whole,
    }
    for key, content in objects.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    workload = load_workload(f"s3://{bucket}/x", session=lambda: session)
    assert {item.prompt_id for item in workload.items} == {
        f"traffic/{1:032x}",
        f"traffic/{2:032x}",
        "capture/event",
    }
    assert "b.jsonl.gz: the compressed file ends early or is damaged" in workload.notes[0]
    single = load_workload(f"s3://{bucket}/x/e/2026/11/24/10/a.jsonl.gz", session=lambda: session)
    assert len(single.items) == 2


def test_an_empty_or_missing_prefix_says_what_to_do(session: Session, bucket: str) -> None:
    with pytest.raises(SpecError, match="no objects ending with") as raised:
        load_workload(f"s3://{bucket}/nothing", session=lambda: session)
    assert "aws s3 ls" in (raised.value.next_step or "")
    with pytest.raises(NotFound, match="does not exist"):
        load_workload("s3://no-such-bucket/x", session=lambda: session)
