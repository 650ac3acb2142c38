from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sagemaker_local
from peagle_learn.core.spec import LearnSpec
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from tests.local.serving import Server


@pytest.fixture
def local(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


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
