"""An S3 prefix as a target, on the local server's S3: encrypted, tagged, deleted by a rule, read back."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest

from peagle_bench.workloads import load_workload
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.traffic.reading import read
from peagle_sm.traffic.s3_target import S3Target, lifecycle_rule
from tests.local.serving import Server
from tests.traffic.samples import CHAT, line

_numbers = itertools.count(1)


@pytest.fixture
def session(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


@pytest.fixture
def bucket(session: Session) -> str:
    name = f"traffic-{next(_numbers)}"
    session.client("s3").create_bucket(Bucket=name)
    return name


def target_at(session: Session, bucket: str, **options: Any) -> S3Target:
    return S3Target(session, f"s3://{bucket}/team/a", "e", **{"keep_days": 30, **options})


def keys(session: Session, bucket: str) -> list[str]:
    rows = session.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
    return [row["Key"] for row in rows]


def test_records_are_written_in_batches_and_read_back(session: Session, bucket: str) -> None:
    clock = [0.0]
    target = target_at(session, bucket, clock=lambda: 1.0e9, monotonic=lambda: clock[0])
    target.prepare()
    target.write([line(1)])
    target.write([line(2)])
    target.tick()
    assert len(keys(session, bucket)) == 1  # the empty object of `prepare`
    clock[0] = 61
    target.tick()
    target.write([line(3)])
    assert target.close() is None
    result = keys(session, bucket)
    assert len(result) == 3
    assert all(key.startswith("team/a/e/2001/09/09/01/peagle-traffic-20010909T014640Z-") for key in result)
    traffic = read(f"s3://{bucket}/team/a", session)
    assert sorted(one.id[-1] for one in traffic.records) == ["1", "2", "3"]
    assert traffic.notes == ()


def test_objects_are_encrypted_with_the_key_and_tagged(session: Session, bucket: str) -> None:
    target = target_at(session, bucket, kms_key_id="alias/records")
    target.prepare()
    s3 = session.client("s3")
    (key,) = keys(session, bucket)
    head = s3.head_object(Bucket=bucket, Key=key)
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/records")
    tags = s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    assert tags == [{"Key": "peagle-sm", "Value": "traffic"}]


def test_the_rule_deletes_tagged_objects_only_and_keeps_other_rules(session: Session, bucket: str) -> None:
    s3 = session.client("s3")
    others = {
        "ID": "logs",
        "Filter": {"Prefix": "logs/"},
        "Status": "Enabled",
        "Expiration": {"Days": 7},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [others]})
    for days in (30, 30, 10):
        target_at(session, bucket, keep_days=days).prepare()
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [rule["ID"] for rule in rules] == ["logs", lifecycle_rule("team/a/", 10)["ID"]]
    ours = rules[1]
    assert ours["Expiration"]["Days"] == 10
    assert ours["Filter"]["And"] == {"Prefix": "team/a/", "Tags": [{"Key": "peagle-sm", "Value": "traffic"}]}


def test_without_a_retention_no_rule_is_added(session: Session, bucket: str) -> None:
    target_at(session, bucket, keep_days=None).prepare()
    with pytest.raises(Exception, match="NoSuchLifecycleConfiguration"):
        session.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket)


def test_a_bucket_that_cannot_be_used_is_refused_before_anything_starts(
    session: Session, server: Server, bucket: str
) -> None:
    with pytest.raises(NotFound, match="s3://nowhere does not exist"):
        S3Target(session, "s3://nowhere/x", "e", keep_days=None).prepare()
    with pytest.raises(SpecError, match="is not an S3 URI"):
        S3Target(session, "s3:/x", "e", keep_days=None)
    server.client("s3", region_name="eu-west-1").create_bucket(
        Bucket="far", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    with pytest.raises(SpecError, match="the bucket far is in eu-west-1; allowed: us-east-1") as raised:
        S3Target(session, "s3://far/x", "e", keep_days=None).prepare()
    assert "record to a file" in (raised.value.next_step or "")
    deny(session, bucket, "s3:PutObject")
    with pytest.raises(CredentialsError, match=r"does not accept records: PutObject: ") as denied:
        target_at(session, bucket, keep_days=None).prepare()
    assert "s3:PutObjectTagging" in (denied.value.next_step or "")


def deny(session: Session, bucket: str, *actions: str) -> None:
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": list(actions),
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    session.client("s3").put_bucket_policy(
        Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    )


class Refusing:
    """A session whose S3 fails for one call, and whose other calls are the real session's."""

    def __init__(self, session: Session, call: str, error: PeagleError | None) -> None:
        self._session = session
        self._call = call
        self.error = error
        self.region = session.region
        self.local_url = session.local_url
        self.account = session.account

    def client(self, service: str) -> Any:
        return _Client(self._session.client(service), self)


class _Client:
    def __init__(self, client: Any, refusing: Refusing) -> None:
        self._client = client
        self._refusing = refusing

    def __getattr__(self, name: str) -> Any:
        if name == self._refusing._call and self._refusing.error is not None:
            raise self._refusing.error
        return getattr(self._client, name)


def test_a_bucket_that_is_denied_later_loses_its_records_and_counts_them(
    session: Session, bucket: str
) -> None:
    clock = [0.0]
    target = target_at(session, bucket, keep_days=None, monotonic=lambda: clock[0])
    target.prepare()
    deny(session, bucket, "s3:PutObject")
    target.write([line(1), line(2)])
    clock[0] = 61
    lost = target.tick()
    assert lost is not None
    assert lost.records == 2
    assert lost.reason.startswith(f"s3://{bucket}/team/a/: PutObject: ")
    assert target.close() is None


def test_a_passing_failure_keeps_the_records_for_the_next_try(session: Session, bucket: str) -> None:
    refusing = Refusing(session, "put_object", ServiceFault("slow down", code="SlowDown"))
    clock = [0.0]
    target = target_at(refusing, bucket, keep_days=None, monotonic=lambda: clock[0])  # type: ignore[arg-type]
    target.write([line(1)])
    clock[0] = 61
    assert target.tick() is None
    refusing.error = None
    assert target.tick() is None
    assert keys(session, bucket) == []  # not before 30 s have passed
    clock[0] = 92
    assert target.tick() is None
    assert [one.id[-1] for one in read(f"s3://{bucket}/team/a", session).records] == ["1"]


def test_while_uploads_fail_the_oldest_records_are_lost_and_memory_is_bounded(
    session: Session, bucket: str
) -> None:
    refusing = Refusing(session, "put_object", ServiceFault("no answer", code="NoAnswer"))
    target = target_at(refusing, bucket, keep_days=None)  # type: ignore[arg-type]
    large = line(1, request={"prompt": "x" * 1_000_000})
    lost = [target.write([large]) for _ in range(20)]
    assert sum(one.records for one in lost if one is not None) == 4
    last = target.close()
    assert last is not None
    assert last.records == 16


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
