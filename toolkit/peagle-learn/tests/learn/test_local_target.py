"""A catalogue model whose files are in the local SageMaker's S3 and not in the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import plan_data
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import NotFound
from peagle_sm.service.heads.checking import Sources, config_of
from tests.learn.conftest import Make

pytestmark = pytest.mark.slow
MODEL = "smollm2-135m-instruct"


def test_its_tokenizer_is_read_once_its_first_endpoint_has_brought_its_files(
    session: Session, spec_of: Make, tmp_path: Path
) -> None:
    spec: LearnSpec = spec_of([{"prompt": f"prompt {number}, quite different"} for number in range(20)])
    spec = spec.model_copy(update={"target": spec.target.model_copy(update={"model": MODEL})})
    sources = Sources(lambda: session)
    with pytest.raises(NotFound, match="come with its first endpoint"):
        sources.target(MODEL)
    before = plan_data(spec, session, tmp_path / "before").offer
    [note] = [note for note in before.notes if "tokenizer" in note]
    assert "first endpoint" in note
    assert session.local is not None
    uri = session.local.artifacts["smollm2"]
    files = {"config.json": json.dumps({"vocab_size": 49152}), "chat_template.jinja": "{{ messages }}"}
    try:
        for name, text in files.items():
            s3.upload(session, uri + name, text.encode())
        assert config_of(sources.target(MODEL)) == {"vocab_size": 49152}
        plan = plan_data(spec, session, tmp_path / "after")
        assert plan.vocab_size == 49152
        assert not [note for note in plan.offer.notes if "tokenizer" in note]
    finally:
        bucket, prefix = s3.split_uri(uri)
        for name in files:
            session.api("s3").delete_object(Bucket=bucket, Key=prefix + name)


def test_the_files_of_a_target_with_an_address_of_its_own_are_read_there(
    session: Session, spec_of: Make, bucket: str, tmp_path: Path
) -> None:
    s3.upload(session, f"s3://{bucket}/mine/config.json", b'{"vocab_size": 77}')
    spec: LearnSpec = spec_of([{"prompt": f"prompt {number}, quite different"} for number in range(20)])
    target = spec.target.model_copy(update={"uri": f"s3://{bucket}/mine/"})
    plan = plan_data(spec.model_copy(update={"target": target}), session, tmp_path)
    assert plan.vocab_size == 77
