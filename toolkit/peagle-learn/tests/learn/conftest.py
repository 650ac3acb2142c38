from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sagemaker_local
from peagle_learn.core.spec import LearnSpec
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint, delete, deploy

Make = Callable[..., LearnSpec]
_numbers = itertools.count(1)
EVENT = {
    "choices": [{"text": "ok", "token_ids": [5, 6], "prompt_token_ids": [1, 2, 3], "finish_reason": "stop"}]
}


SHIPPED = Path(sagemaker_local.__file__).parent / "weights"
WEIGHTS = "s3://learn-tests/weights/"


def stored(session: Session, name: str) -> None:
    """Put the shipped weights into the bucket, once."""
    s3 = session.api("s3")
    for path in sorted((SHIPPED / name).iterdir()):
        key = f"weights/{name}/{path.name}"
        if not s3.list_objects_v2(Bucket="learn-tests", Prefix=key)["KeyCount"]:
            s3.put_object(Bucket="learn-tests", Key=key, Body=path.read_bytes())


def document(length: int = 40) -> str:
    mask = [0] * 10 + [1] * (length - 10)
    return json.dumps({"input_ids": list(range(length)), "loss_mask": mask})


@pytest.fixture
def folder(tmp_path: Path, local: Session) -> Path:
    """Training data of this machine, and a bucket for the job's."""
    local.api("s3").create_bucket(Bucket="learn-tests")
    stored(local, "target")
    stored(local, "p-eagle")
    for name, count in (("training", 20), ("validation", 4)):
        text = "".join(f"{document()}\n" for _ in range(count))
        (tmp_path / f"{name}.tokens.jsonl").write_text(text)
    return tmp_path


@pytest.fixture
def make_spec() -> Callable[..., LearnSpec]:
    def make(
        name: str = "team-a", head: str | None = None, bucket: str = "s3://learn-tests/x", **train: Any
    ) -> LearnSpec:
        data = {"training": "training.tokens.jsonl", "validation": "validation.tokens.jsonl"}
        return LearnSpec(
            name=name,
            target={"model": "tiny-code", "uri": f"{WEIGHTS}target/"},
            head=head or f"{WEIGHTS}p-eagle/",
            bucket=bucket,
            train={**data, **train},
        )

    return make


@pytest.fixture(scope="module")
def session(local: Session) -> Session:
    return local


@pytest.fixture(scope="module")
def endpoint(session: Session) -> Any:
    script = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"
    spec = EndpointSpec(
        name=f"learn-data-{next(_numbers)}",
        model="tiny-code",
        serving={"env": {"SCRIPT_INVOKE": "say", "SCRIPT_BODY": script}},
    )
    created: Endpoint = deploy(spec, session=session, unguarded=True)
    yield created.name
    delete([created.name], session=session)


def write_spec(
    folder: Path,
    bucket: str,
    endpoint: str,
    lines: list[dict[str, Any]],
    general: list[dict[str, Any]] | None = None,
    **data: Any,
) -> LearnSpec:
    """Write prompts, and return a spec that reads them."""
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fields = {"prompts": [str(folder / "p.jsonl")], "max_tokens": 32, **data}
    if general is not None:
        (folder / "g.jsonl").write_text("".join(json.dumps(line) + "\n" for line in general))
        fields["general"] = str(folder / "g.jsonl")
    return LearnSpec(
        name="team",
        target={"model": "tiny-code"},
        endpoint=endpoint,
        bucket=f"s3://{bucket}/x",
        data=fields,
    )


@pytest.fixture
def spec_of(bucket: str, endpoint: str, tmp_path: Path) -> Make:
    return partial(write_spec, tmp_path, bucket, endpoint)


def keys_in(session: Session, bucket: str) -> set[str]:
    return set(s3.list_sizes(session, bucket, ""))


def keep_only(keys: set[str], session: Session, bucket: str) -> None:
    """Delete what a test has stored beside the objects that all tests of a module use."""
    for key in keys_in(session, bucket) - keys:
        session.client("s3").delete_object(Bucket=bucket, Key=key)
