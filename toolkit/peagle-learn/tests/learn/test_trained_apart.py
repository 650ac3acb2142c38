"""A head is proved on prompts that it has not learned: its training names the data, and so does the set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.core.proof import UNKNOWN_TRAINING
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import DataResult
from peagle_learn.prove import ProvePlan, plan_prove
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused
from peagle_train.dataset import check_channel
from tests.learn.test_data import make_set, texts
from tests.learn.test_prove import HEAD, endpoint, served  # noqa: F401

pytestmark = pytest.mark.usefixtures("endpoint")
VOCAB = 512


@pytest.fixture
def spec(spec_of: Callable[..., LearnSpec]) -> LearnSpec:
    return spec_of(texts(24), general=texts(10, seed=3), held_out=0.25)


@pytest.fixture
def data(spec: LearnSpec, session: Session, tmp_path: Path) -> DataResult:
    return make_set(spec, session, tmp_path / "work")


def trained_on(folder: Path, head: Path) -> Path:
    """Return a head that says of its training what the trainer writes after reading a channel."""
    shutil.copytree(HEAD, head)
    facts = check_channel("training", folder, vocab=VOCAB, sequence_length=512).facts
    (head / "training.json").write_text(json.dumps({"data": {"training": facts}}))
    return head


def planned(spec: LearnSpec, head: Path, session: Session, work: Path) -> ProvePlan:
    return plan_prove(spec, served(), str(head), session, work)


def with_seed(spec: LearnSpec, seed: int) -> LearnSpec:
    return spec.model_copy(update={"data": spec.data.model_copy(update={"seed": seed})})


def test_a_head_is_not_proved_on_another_set_than_it_learned(
    spec: LearnSpec, session: Session, data: DataResult, tmp_path: Path
) -> None:
    work, head = tmp_path / "work", trained_on(data.folder / "training", tmp_path / "head")
    plan = planned(spec, head, session, work)
    assert plan.trained_apart is True
    assert UNKNOWN_TRAINING not in plan.offer.warnings
    learned = {json.loads(line)["conversation"] for line in _rows(data.folder / "training")}

    other = with_seed(spec, 5)
    newest = make_set(other, session, work)
    names = {json.loads(line)["conversation"] for line in _rows(newest.folder / "validation")}
    assert learned & names, "held-out prompts of the other set are among what the head learned"
    with pytest.raises(PlanRefused, match="trained on other data than the newest set"):
        planned(other, head, session, work)

    make_set(spec, session, work)  # as the refusal says
    assert planned(spec, head, session, work).trained_apart is True


def _rows(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("training", [None, "no JSON", "[]", '{"data": {"training": null}}', '{"data": {}}'])
def test_a_head_of_unknown_training_is_proved_with_a_warning(
    spec: LearnSpec, session: Session, tmp_path: Path, training: Any
) -> None:
    head = tmp_path / "head"
    shutil.copytree(HEAD, head)
    if training is not None:
        (head / "training.json").write_text(training)
    plan = planned(spec, head, session, tmp_path / "work")
    assert plan.trained_apart is None
    assert UNKNOWN_TRAINING in plan.offer.warnings


def test_data_of_ones_own_is_unknown_and_not_refused(
    spec: LearnSpec, session: Session, data: DataResult, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "own.tokens.jsonl").write_text("\n".join(_rows(data.folder / "training")[:3]))
    head = trained_on(own, tmp_path / "head")
    answer = spec.model_copy(update={"train": spec.train.model_copy(update={"training": "own.tokens.jsonl"})})
    assert planned(answer, head, session, tmp_path / "work").trained_apart is None
