"""Input that the trainer would refuse in the paid job: `learn train` tells it before anything is created."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.aws.jobs import job_names
from peagle_learn.core.spec import LearnSpec
from peagle_learn.stored_data import COUNTED_BYTES, MANIFEST, SCHEMA, TRAINING, data_uri, set_uri, spread
from peagle_learn.train import plan_training
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused
from tests.learn.conftest import SHIPPED, WEIGHTS, document

Make = Callable[..., LearnSpec]
VOCAB = 2048
_numbers = itertools.count(1)


def refused(session: Session, spec: LearnSpec, folder: Path) -> str:
    """The messages of a refused plan; each has a next step, and nothing was created."""
    with pytest.raises(PlanRefused) as caught:
        plan_training(spec, session, folder).refuse_errors()
    errors = [one for one in caught.value.details["findings"] if one["severity"] == "error"]
    assert all(one["next_step"] for one in errors)
    assert list(job_names(session, f"{spec.name}-")) == []
    return "\n".join(one["message"] for one in errors)


def changed(session: Session, name: str, **config: Any) -> str:
    """Store the shipped weights with another config; return where."""
    s3 = session.api("s3")
    place = f"changed-{next(_numbers)}"
    for path in sorted((SHIPPED / name).iterdir()):
        content = path.read_bytes()
        if path.name == "config.json":
            content = json.dumps({**json.loads(content), **config}).encode()
        s3.put_object(Bucket="learn-tests", Key=f"weights/{place}/{path.name}", Body=content)
    return f"{WEIGHTS}{place}/"


def with_target(spec: LearnSpec, **target: Any) -> LearnSpec:
    answer = spec.model_dump(mode="json", exclude_unset=True)
    return LearnSpec.model_validate({**answer, "target": {**answer["target"], **target}})


def ids(*values: int) -> str:
    return json.dumps({"input_ids": values, "loss_mask": [0, *[1] * (len(values) - 1)]}) + "\n"


def stored_set(session: Session, spec: LearnSpec, lines: str, target: dict[str, Any]) -> None:
    """Store what `learn data` leaves: a set and the manifest that names it."""
    manifest = {"schema": SCHEMA, "data": "d" * 64, "target": target}
    for uri, content in (
        (f"{set_uri(spec, 'd' * 64)}{TRAINING}", lines),
        (f"{data_uri(spec)}{MANIFEST}", json.dumps(manifest)),
    ):
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        session.api("s3").put_object(Bucket=bucket, Key=key, Body=content.encode())


@pytest.mark.parametrize("channel", ["training", "validation"])
def test_token_ids_of_another_tokenizer(local: Session, folder: Path, make_spec: Make, channel: str) -> None:
    (folder / "other.tokens.jsonl").write_text(f"{document()}\n" + ids(1, VOCAB - 1) + ids(1, VOCAB))
    message = refused(local, make_spec("tokenizer", **{channel: "other.tokens.jsonl"}), folder)
    assert f"train.{channel}: " in message
    assert "line 3: input_ids has 2048; the target's tokens go from 0 to 2047" in message


def test_the_beginning_of_data_too_large_to_count(local: Session, folder: Path, make_spec: Make) -> None:
    spec = make_spec("large", training=None, validation=None)
    empty = "\n" * COUNTED_BYTES
    stored_set(local, spec, ids(1, VOCAB) + empty, spec.target.model_dump(mode="json"))
    assert "it has another tokenizer" in refused(local, spec, folder)
    stored_set(local, spec, ids(1, 2) + empty, spec.target.model_dump(mode="json"))
    assert plan_training(spec, local, folder).errors == []


def test_large_data_is_checked_at_the_beginning_of_files_that_are_spread(
    local: Session, folder: Path, make_spec: Make
) -> None:
    """40 files: 16 of them are read, among them the first, the last and some between."""
    s3, spec = local.api("s3"), make_spec("files", training="s3://learn-tests/many/", validation=None)
    filler = "\n" * (COUNTED_BYTES // 39)
    names = [f"{number:02d}.tokens.jsonl" for number in range(40)]
    for name in names:
        s3.put_object(Bucket="learn-tests", Key=f"many/{name}", Body=(ids(1, 2) + filler).encode())
    plan = plan_training(spec, local, folder)
    assert plan.errors == []
    message = " ".join(dict(plan.card().fields)["training"].split())
    assert (
        "checked: 16 documents at the beginning of 16 of 40 files, 16.0 of 65.6 MB; the job checks" in message
    )
    assert plan.to_dict()["channels"]["training"]["checked"] in message
    for name in (names[-1], spread(names, 16)[7]):
        s3.put_object(Bucket="learn-tests", Key=f"many/{name}", Body=(ids(1, VOCAB) + filler).encode())
        assert f"many/{name} line 1: input_ids has 2048" in refused(local, spec, folder)
        s3.put_object(Bucket="learn-tests", Key=f"many/{name}", Body=(ids(1, 2) + filler).encode())


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (16, 16), (17, 16), (1000, 16)])
def test_the_sampled_files_are_spread(count: int, expected: int) -> None:
    names = [str(number) for number in range(count)]
    result = spread(names, 16)
    assert len(set(result)) == len(result) == expected
    assert result == sorted(result, key=int)
    assert result[:1] == names[:1]
    assert result[-1:] == names[-1:]


def test_data_that_was_made_for_another_target(local: Session, folder: Path, make_spec: Make) -> None:
    spec = make_spec("moved", training=None, validation=None)
    stored_set(local, spec, f"{document()}\n" * 4, {"model": "gpt-oss-20b", "revision": None})
    message = refused(local, spec, folder)
    assert message.count("was made for target.model: 'gpt-oss-20b'; learn.yaml has 'tiny-code'") == 1
    stored_set(local, spec, f"{document()}\n" * 4, spec.target.model_dump(mode="json"))
    assert plan_training(spec, local, folder).errors == []


@pytest.mark.parametrize("head", ["none", None])
def test_a_target_without_hidden_states(
    local: Session, folder: Path, make_spec: Make, head: str | None
) -> None:
    place = changed(local, "target", architectures=["MambaForCausalLM"], model_type="mamba")
    spec = make_spec("mamba", head=head, mask_token_id=3)
    message = refused(local, with_target(spec, uri=place), folder)
    assert "the target's architecture is MambaForCausalLM; allowed: LlamaForCausalLM" in message


def test_a_target_without_its_context(local: Session, folder: Path, make_spec: Make) -> None:
    place = changed(local, "target", max_position_embeddings=None)
    message = refused(local, with_target(make_spec("sizes"), uri=place), folder)
    assert "max_position_embeddings is None; allowed: a whole number above 0" in message


def test_documents_of_one_conversation(local: Session, folder: Path, make_spec: Make) -> None:
    line = json.dumps({"input_ids": [1, 2], "loss_mask": [0, 1], "conversation": "c"}) + "\n"
    (folder / "one.tokens.jsonl").write_text(line * 3)
    message = refused(local, make_spec("one-talk", training="one.tokens.jsonl"), folder)
    assert "train.training: found 1 conversation; allowed: at least 2" in message
    (folder / "one.tokens.jsonl").write_text(line * 3 + line.replace('"c"', '"d"'))
    plan = plan_training(make_spec("one-talk", training="one.tokens.jsonl"), local, folder)
    assert plan.errors == []
    channel = plan.to_dict()["channels"]["training"]
    assert (channel["conversations"], channel["documents"], channel["tokens"]) == (2, 4, 8)
    assert "2 conversations, 4 documents, 8 tokens" in str(plan.card())


@pytest.mark.parametrize("channel", ["training", "validation"])
def test_one_document(local: Session, folder: Path, make_spec: Make, channel: str) -> None:
    (folder / "one.tokens.jsonl").write_text(f"{document()}\n")
    message = refused(local, make_spec("single", **{channel: "one.tokens.jsonl"}), folder)
    assert f"train.{channel}: found 1 conversation; allowed: at least 2" in message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"norm_before_residual": True}, "norm_before_residual is true"),
        ({"hidden_act": "gelu"}, "hidden_act: found 'gelu'"),
        (
            {
                "eagle_aux_hidden_state_layer_ids": [0, 3, 5],
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 5]},
            },
            "it reads layer 0, the target has 6; it was trained for another target",
        ),
    ],
)
def test_a_head_that_cannot_be_trained_further(
    local: Session, folder: Path, make_spec: Make, config: dict[str, Any], message: str
) -> None:
    assert message in refused(local, make_spec("head", head=changed(local, "p-eagle", **config)), folder)


@pytest.mark.parametrize(
    ("head", "train", "message"),
    [
        ("none", {"mask_token_id": 99_999}, "train.mask_token_id: found 99999; allowed: at most 2047"),
        (
            "none",
            {"mask_token_id": 3, "aux_layer_ids": [1, 3, 99]},
            "aux_layer_ids: found [1, 3, 99]; allowed: at most 6",
        ),
        ("none", {"mask_token_id": 3, "aux_layer_ids": [1, 1, 3]}, "allowed: each layer once"),
        (
            "none",
            {"mask_token_id": 3, "draft_num_attention_heads": 4, "draft_num_key_value_heads": 3},
            "train.draft_num_key_value_heads: found 3; allowed: what divides the 4 heads",
        ),
        (None, {"mask_token_id": 99_999}, "found 99999, but the head to start from has 1"),
        (None, {"aux_layer_ids": [1, 3, 4]}, "found [1, 3, 4], but the head to start from has [1, 3, 5]"),
        (None, {"num_draft_layers": 5}, "found 5, but the head to start from has 2"),
    ],
)
def test_settings_that_do_not_fit(
    local: Session, folder: Path, make_spec: Make, head: str | None, train: dict[str, Any], message: str
) -> None:
    assert message in refused(local, make_spec("settings", head=head, **train), folder)


def test_settings_that_repeat_what_the_head_says(local: Session, folder: Path, make_spec: Make) -> None:
    spec = make_spec("repeats", aux_layer_ids=[1, 3, 5], mask_token_id=1, num_draft_layers=2)
    assert plan_training(spec, local, folder).errors == []
