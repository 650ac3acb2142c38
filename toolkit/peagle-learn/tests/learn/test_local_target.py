"""Targets whose files are not in the package: downloaded once, or at an address of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import plan_data
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from tests.learn.conftest import Make

pytestmark = pytest.mark.slow
MODEL = "smollm2-135m-instruct"


def test_its_tokenizer_is_read_before_it_has_an_endpoint(
    session: Session, spec_of: Make, tmp_path: Path
) -> None:
    spec: LearnSpec = spec_of([{"prompt": f"prompt {number}, quite different"} for number in range(20)])
    spec = spec.model_copy(update={"target": spec.target.model_copy(update={"model": MODEL})})
    plan = plan_data(spec, session, tmp_path)
    assert plan.vocab_size == 49152
    assert not [note for note in plan.offer.notes if "tokenizer" in note]


def test_the_files_of_a_target_with_an_address_of_its_own_are_read_there(
    session: Session, spec_of: Make, bucket: str, tmp_path: Path
) -> None:
    s3.upload(session, f"s3://{bucket}/mine/config.json", b'{"vocab_size": 77}')
    spec: LearnSpec = spec_of([{"prompt": f"prompt {number}, quite different"} for number in range(20)])
    target = spec.target.model_copy(update={"uri": f"s3://{bucket}/mine/"})
    plan = plan_data(spec.model_copy(update={"target": target}), session, tmp_path)
    assert plan.vocab_size == 77
