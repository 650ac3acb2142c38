"""Staging against the local SageMaker's S3: whole, in parts, killed, interrupted, refused, and read back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.aws.readers import resources
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.downloads import Hub
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import Interrupted, NotFound, PlanRefused, SpecError
from peagle_sm.core.heads.layout import HeadRefused
from peagle_sm.core.heads.reading import parse_manifest
from peagle_sm.core.plan.resolve import Context, Draft, resolve
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.heads import Sources, Staged, check_head, plan_staging, stage
from peagle_sm.service.heads.staging import spec_fields
from tests.heads import filled, head_config, safetensors, target_config, tensors_for, write_head
from tests.hub_server import LocalHub, local_hub

PART = 5 * 2**20


@pytest.fixture
def session(local: Session) -> Session:
    return local


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        yield server


@pytest.fixture
def sources(session: Session, hub: LocalHub) -> Sources:
    return Sources(lambda: session, lambda: Hub(hub.url, "none", lambda seconds: None))


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """A target of 12 MB, so in three parts, and a head for it."""
    target = tmp_path / "target"
    large = safetensors(
        {"model.embed_tokens.weight": filled((64, 2**16)), "lm_head.weight": filled((64, 2**15))}
    )
    target.mkdir()
    (target / "config.json").write_text(json.dumps(target_config()))
    (target / "model.safetensors").write_bytes(large)
    (target / "modeling.py").write_text("left out")
    write_head(tmp_path / "head")
    return tmp_path


Stage = Callable[..., Staged]


@pytest.fixture
def staged(sources: Sources, family: Path, tmp_path: Path) -> Stage:
    def call(uri: str, *, head: Path | None = None, progress: Any = lambda *step: None) -> Staged:
        plan = plan_staging(str(family / "target"), uri, sources=sources, head=str(head or family / "head"))
        return stage(
            plan, sources=sources, cache=tmp_path / "cache", version="1", progress=progress, part_bytes=PART
        )

    return call


def objects(session: Session, bucket: str) -> dict[str, int]:
    result = session.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
    return {row["Key"]: row["Size"] for row in result}


def uploads(session: Session, bucket: str) -> list[str]:
    return [
        row["Key"] for row in session.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    ]


class Calls:
    """Counts the calls of one operation that a session's client sends."""

    def __init__(self, session: Session, operation: str) -> None:
        self.count = 0
        session.client("s3").meta.events.register(f"before-call.s3.{operation}", self._one)

    def _one(self, **_: Any) -> None:
        self.count += 1


def test_a_target_and_its_head_lie_under_one_prefix(
    session: Session, bucket: str, staged: Stage, sources: Sources, family: Path
) -> None:
    done = staged(f"s3://{bucket}/models/tiny")
    names = {"config.json", "model.safetensors"}
    head = {"p-eagle/README.md", "p-eagle/config.json", "p-eagle/model.safetensors"}
    result = objects(session, bucket)
    assert set(result) == {f"models/tiny/{name}" for name in names | head | {"manifest.json"}}
    assert (done.sent, done.skipped) == (5, 0)
    assert (done.model_uri, done.head_uri) == (
        f"s3://{bucket}/models/tiny/",
        f"s3://{bucket}/models/tiny/p-eagle/",
    )
    text = session.client("s3").get_object(Bucket=bucket, Key="models/tiny/manifest.json")["Body"].read()
    manifest = parse_manifest(text)
    assert manifest == done.manifest
    assert manifest.head_facts is not None
    assert (manifest.head_facts.method, manifest.head and manifest.head.licence) == ("p-eagle", "apache-2.0")
    sums = {file.name: file.sha256 for file in manifest.files}
    assert sums["p-eagle/config.json"] == check_head(family / "head", sources=sources).files[1].sha256
    uri = f"s3://{bucket}/models/tiny"
    plan = plan_staging(str(family / "target"), uri, sources=sources, head=str(family / "head"))
    assert plan.part("target").left_out == ("modeling.py",)  # type: ignore[union-attr]
    assert spec_fields(plan, done) == {
        "source": "container",
        "model_uri": done.model_uri,
        "head_uri": done.head_uri,
        "speculation.mode": "p-eagle",
        "speculation.draft_head": "head",
    }


def test_a_second_run_sends_nothing(session: Session, bucket: str, staged: Stage) -> None:
    first = staged(f"s3://{bucket}/twice/")
    before = session.client("s3").head_object(Bucket=bucket, Key="twice/manifest.json")["LastModified"]
    calls = [Calls(session, name) for name in ("PutObject", "CreateMultipartUpload", "UploadPart")]
    again = staged(f"s3://{bucket}/twice/")
    assert (again.sent, again.skipped, again.manifest) == (0, 5, first.manifest)
    assert [each.count for each in calls] == [0, 0, 0]
    assert (
        session.client("s3").head_object(Bucket=bucket, Key="twice/manifest.json")["LastModified"] == before
    )


def test_an_upload_of_a_killed_process_is_not_used_and_deleted(
    session: Session, bucket: str, staged: Stage
) -> None:
    s3 = session.client("s3")
    created = s3.create_multipart_upload(
        Bucket=bucket, Key="other/model.safetensors", ChecksumAlgorithm="SHA256"
    )
    s3.upload_part(
        Bucket=bucket,
        Key="other/model.safetensors",
        UploadId=created["UploadId"],
        PartNumber=1,
        Body=b"x" * PART,
        ChecksumAlgorithm="SHA256",
    )
    calls = Calls(session, "UploadPart")
    assert staged(f"s3://{bucket}/other/").sent == 5
    assert calls.count == 3
    assert uploads(session, bucket) == []


def _ends(error: BaseException) -> Callable[[str, str, int, int], None]:
    """Progress that ends the run in the middle of the largest file."""

    def end(step: str, name: str, done: int, size: int) -> None:
        if step == "send" and name == "model.safetensors":
            raise error

    return end


def test_a_run_that_ends_leaves_no_incomplete_upload_and_ctrl_c_says_what_is_left(
    session: Session, bucket: str, staged: Stage
) -> None:
    uri = f"s3://{bucket}/pressed/"
    with pytest.raises(SystemExit):
        staged(uri, progress=_ends(SystemExit()))
    assert uploads(session, bucket) == []
    with pytest.raises(Interrupted, match=r"no incomplete upload is left. 1 whole files") as caught:
        staged(uri, progress=_ends(KeyboardInterrupt()))
    assert uploads(session, bucket) == []
    assert caught.value.next_step == f"Run it again, or delete them: aws s3 rm --recursive {uri}"
    assert caught.value.details["resources"] == [f"{uri}config.json"]
    assert not {"pressed/manifest.json", "pressed/model.safetensors"} & objects(session, bucket).keys()
    calls = Calls(session, "UploadPart")
    assert (staged(uri).sent, calls.count) == (4, 3)
    assert staged(uri).sent == 0


def test_a_fault_on_the_way_names_what_stays_and_what_removes_it(
    session: Session, bucket: str, staged: Stage
) -> None:
    uri = f"s3://{bucket}/failed/"
    session.client("s3").create_multipart_upload(Bucket=bucket, Key="failed/of-a-killed-process")
    with pytest.raises(NotFound) as caught:
        staged(uri, progress=_ends(NotFound("gone", next_step="Look.")))
    assert uploads(session, bucket) == ["failed/of-a-killed-process"]
    command = f"peagle-sm heads stage --to {uri} --abort{session.command_flags()}"
    assert caught.value.next_step == (
        f"Look. Incomplete uploads are left and billed; `{command}` deletes them."
    )


def test_what_is_there_is_never_written_over(
    session: Session, bucket: str, staged: Stage, family: Path
) -> None:
    s3 = session.client("s3")
    s3.put_object(Bucket=bucket, Key="strange/results.csv", Body=b"mine")
    with pytest.raises(PlanRefused, match=r"holds other files: results\.csv\. Nothing was changed"):
        staged(f"s3://{bucket}/strange/")
    same_size = (family / "head" / "config.json").read_bytes().replace(b"0", b"1")
    s3.put_object(Bucket=bucket, Key="changed/p-eagle/config.json", Body=same_size)
    with pytest.raises(PlanRefused, match=r"holds other files: p-eagle/config.json"):
        staged(f"s3://{bucket}/changed/")
    s3.put_object(Bucket=bucket, Key="manifest/manifest.json", Body=b"{}")
    with pytest.raises(PlanRefused, match=r"holds other files: manifest.json"):
        staged(f"s3://{bucket}/manifest/")
    assert s3.get_object(Bucket=bucket, Key="strange/results.csv")["Body"].read() == b"mine"


def test_a_bad_head_is_refused_before_anything_is_sent(
    session: Session, bucket: str, staged: Stage, tmp_path: Path
) -> None:
    lost = {name: each for name, each in tensors_for(head_config()).items() if name != "d2t"}
    bad = write_head(tmp_path / "bad", tensors=lost)
    with pytest.raises(HeadRefused, match="d2t is missing"):
        staged(f"s3://{bucket}/bad/", head=bad)
    (tmp_path / "target" / "config.json").write_text(
        json.dumps({**target_config(), "auto_map": {"A": "team/code--b.C"}})
    )
    with pytest.raises(HeadRefused, match=r"the target at .* must not be deployed:\nremote-code"):
        staged(f"s3://{bucket}/bad/")
    assert objects(session, bucket) == {}


def test_a_prefix_must_be_one(sources: Sources, family: Path) -> None:
    for wrong in ("s3://bucket", "s3://bucket/", "https://bucket/x", "s3://bucket/a//b", "s3://bucket/ä"):
        with pytest.raises(SpecError):
            plan_staging(str(family / "head"), wrong, sources=sources)
    with pytest.raises(NotFound, match="s3://no-such-bucket-at-all does not exist"):
        plan_staging(str(family / "head"), "s3://no-such-bucket-at-all/x", sources=sources)


def test_from_the_hub_the_commit_is_recorded(
    session: Session, bucket: str, sources: Sources, hub: LocalHub, family: Path, tmp_path: Path
) -> None:
    hub.add("owner/head", family / "head")
    hub.cut_after, hub.cuts_left = 2000, 1
    uri = f"s3://{bucket}/hub/"
    plan = plan_staging("owner/head", uri, sources=sources)
    assert plan.parts[0].place.snapshot is not None
    assert plan.parts[0].place.snapshot.asked == "main"
    done = stage(plan, sources=sources, cache=tmp_path / "cache", version="1")
    assert done.manifest.head is not None
    assert (done.manifest.head.source, done.manifest.head.revision) == ("owner/head", "a" * 40)
    assert (done.model_uri, done.head_uri) == (None, uri)
    assert os.listdir(tmp_path / "cache" / "hub") == ["owner--head"]
    before = len(hub.requests)
    again = plan_staging(f"owner/head@{'a' * 40}", uri, sources=sources)
    assert stage(again, sources=sources, cache=tmp_path / "cache", version="1").sent == 0
    whole = [path for _, path, span in hub.requests[before:] if path.startswith("/large") and span is None]
    assert whole == [], "what is in the cache is not fetched again"


def draft_of(model_uri: str, head_uri: str, **speculation: Any) -> Draft:
    spec = EndpointSpec(
        name="demo",
        model="gpt-oss-20b",
        source="container",
        model_uri=model_uri,
        head_uri=head_uri,
        speculation={"mode": "p-eagle", "draft_head": "mine", "num_speculative_tokens": 5, **speculation},
    )
    return resolve(spec, Context("123456789012", "us-east-1"), load_catalog())


def test_a_deploy_sees_what_was_staged(session: Session, bucket: str, staged: Stage) -> None:
    done = staged(f"s3://{bucket}/seen/")
    assert done.model_uri is not None
    look = resources.head(session, draft_of(done.model_uri, done.head_uri))
    assert look is not None
    assert (look.by, look.faults) == ("manifest", ())
    look = resources.head(session, draft_of(done.model_uri, done.head_uri, mode="eagle3"))
    assert look is not None
    assert [fault.message for fault in look.faults] == ["it is a p-eagle head; the spec has mode eagle3"]
    session.client("s3").delete_object(Bucket=bucket, Key="seen/p-eagle/config.json")
    look = resources.head(session, draft_of(done.model_uri, done.head_uri))
    assert look is not None
    assert [fault.message for fault in look.faults] == ["p-eagle/config.json of the manifest does not exist"]


def test_a_deploy_looks_into_a_head_that_nobody_staged(
    session: Session, bucket: str, family: Path, sources: Sources
) -> None:
    s3 = session.client("s3")
    for part in ("target", "head"):
        for path in (family / part).glob("*[nst]"):
            s3.upload_file(str(path), bucket, f"raw/{part}/{path.name}")
    model, head = f"s3://{bucket}/raw/target/", f"s3://{bucket}/raw/head/"
    look = resources.head(session, draft_of(model, head))
    assert look is not None
    assert (look.by, look.faults) == ("files", ())
    assert check_head(head, target=model, sources=sources).ok
    lost = {name: each for name, each in tensors_for(head_config()).items() if name != "d2t"}
    s3.put_object(Bucket=bucket, Key="raw/head/model.safetensors", Body=safetensors(lost))
    look = resources.head(session, draft_of(model, head))
    assert look is not None
    assert [fault.message for fault in look.faults] == ["d2t is missing"]
