"""The lock: there and back, what it answers, and the plan that is made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.changes import Change
from peagle_sm.core.errors import SpecError
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import dump_spec
from peagle_sm.core.spec.lock import (
    Lock,
    LockedInstance,
    LockedLicence,
    LockedModel,
    LockInput,
    changes,
    dump_lock,
    lock_path,
    mismatches,
    parse_lock,
)
from peagle_sm.service.spec_to_plan import load_spec
from tests.core.jumpstart.making import LMI, TARGET, VLLM, a_lock
from tests.core.support import AWS, GPT, LOCAL, ROLE, SCHEDULER_ROLE, found, plan_of, spec_of

QWEN = f"""
name: demo
model: qwen3-coder-30b-a3b-instruct
source: jumpstart
execution_role_arn: {ROLE}
scheduler_role_arn: {SCHEDULER_ROLE}
"""
QWENS = a_lock(
    asked=LockInput(model="qwen3-coder-30b-a3b-instruct"),
    jumpstart=LockedModel(model_id="huggingface-qwen", version="1.2.3", config="best", ranking=("best",)),
    environment={
        "SM_VLLM_MAX_MODEL_LEN": "4096",
        "SM_VLLM_SPECULATIVE_CONFIG": '{"num_speculative_tokens": 6, "parallel_drafting": true}',
    },
)
texts = st.text(max_size=20)


def plan_with(lock: Lock, base: str = GPT, extra: str = "", local: bool = False) -> Plan:
    spec = spec_of(base, extra).with_locks({"local" if local else "aws": lock})
    return make_plan(spec, LOCAL if local else AWS)


@settings(deadline=None)
@given(st.dictionaries(texts, texts, max_size=4), texts, st.none() | st.integers(0, 3600), st.booleans())
def test_a_lock_comes_back_as_it_went_in(
    env: dict[str, str], image: str, seconds: int | None, yes: bool
) -> None:
    lock = a_lock(
        environment=env,
        instances={"ml.g7e.2xlarge": LockedInstance(image=image, target_uri=TARGET, environment=env)},
        startup_timeout_s=seconds,
        licence=LockedLicence(name=image, gated=yes, accepted=not yes),
    )
    assert parse_lock(dump_lock(lock)) == lock


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "peagle.lock: not YAML at line"),
        ("hello", "found 'hello'; allowed: a lock"),
        ("lock_version: 2", "lock_version: found 2; allowed: 1"),
        ("lock_version: 1", "field 'asked' is missing"),
        (dump_lock(a_lock()).replace("sha256: '0", "sha256: 'x"), "source.sha256: found 'x000"),
        (dump_lock(a_lock()) + "extra: 1\n", "unknown field 'extra'"),
    ],
)
def test_what_is_no_lock_is_told_with_the_command_that_writes_one(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_lock(text)
    assert said in caught.value.message
    assert "peagle-sm lock" in (caught.value.next_step or "")


def test_a_lock_lies_beside_its_spec_and_is_read_with_it(tmp_path: Path) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text(dump_spec(spec_of(GPT)))
    assert load_spec(path).lock("aws") is None
    assert lock_path(path, "aws") == tmp_path / "peagle.lock"
    lock_path(path, "aws").write_text(dump_lock(a_lock()))
    lock_path(path, "local").write_text(dump_lock(QWENS))
    spec = load_spec(path)
    assert (spec.lock("aws"), spec.lock("local")) == (a_lock(), QWENS)
    assert spec == spec_of(GPT).with_locks({"aws": a_lock(), "local": QWENS})
    (tmp_path / "peagle.lock").write_text("no lock")
    with pytest.raises(SpecError, match=r"peagle\.lock: found 'no lock'"):
        load_spec(path)
    assert load_spec(path, locks=False).lock("aws") is None


def test_two_locks_differ_in_what_they_pin_and_not_in_who_wrote_them() -> None:
    again = a_lock(written_at="2027-01-01T00:00:00+00:00", written_by="peagle-sm 9")
    assert changes(a_lock(), again) == ()
    other = a_lock(
        head=None,
        environment={"SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "NEW": "yes"},
        supported_instance_types=("ml.g7e.2xlarge",),
    )
    assert changes(a_lock(), other)[:3] == (
        Change("supported_instance_types.0", None, "ml.g7e.2xlarge"),
        Change("environment.SM_VLLM_TENSOR_PARALLEL_SIZE", "1", "2"),
        Change("environment.NEW", None, "yes"),
    )
    removed = {change.field for change in changes(a_lock(), other) if change.after is None}
    assert {"head.channel", "head.uri"} <= removed
    assert "environment.SM_VLLM_SPECULATIVE_CONFIG.method" in removed


def test_a_plan_from_a_lock_of_the_catalogue_s_facts_is_the_catalogue_s_plan() -> None:
    entry = load_catalog().jumpstart["gpt-oss-20b"]
    lock = a_lock(
        environment=dict(entry.environment) | {"SM_VLLM_SPECULATIVE_CONFIG": entry.speculative_config},
        instances={
            "ml.g7e.2xlarge": LockedInstance(
                image=VLLM, target_uri=TARGET, environment={"TENSOR_PARALLEL_DEGREE": "1"}
            )
        },
        download_timeout_s=3600,
        startup_timeout_s=3600,
        supported_instance_types=entry.instance_types,
    )
    assert plan_with(lock).requests == plan_of(GPT).requests
    assert plan_with(lock).findings == plan_of(GPT).findings


def test_a_lock_goes_before_the_catalogue() -> None:
    other = a_lock(instances={"ml.g7e.2xlarge": LockedInstance(image=VLLM, target_uri="s3://b/pinned/")})
    container = plan_with(other).requests[1].parameters["PrimaryContainer"]
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"] == "s3://b/pinned/"
    assert found(
        plan_with(a_lock(instances={"ml.g7e.2xlarge": LockedInstance(image=LMI, target_uri=TARGET)})),
        "draft-dropped",
    )


def test_a_model_that_the_catalogue_does_not_have_is_planned_from_its_lock() -> None:
    (missing,) = found(plan_of(QWEN), "missing-fact")
    assert "`peagle-sm lock SPEC`" in missing.next_step
    plan = plan_with(QWENS, QWEN)
    assert not plan.refused
    environment = plan.requests[1].parameters["PrimaryContainer"]["Environment"]
    assert environment["SM_VLLM_MAX_MODEL_LEN"] == "4096"
    assert '"num_speculative_tokens":6' in environment["SM_VLLM_SPECULATIVE_CONFIG"]
    assert (
        plan.requests[1].parameters["PrimaryContainer"]["AdditionalModelDataSources"][0]["ChannelName"]
        == "eagle"
    )


def test_a_head_that_is_in_no_catalogue_comes_with_the_lock() -> None:
    gemma = QWEN.replace("qwen3-coder-30b-a3b-instruct", "gemma-4-31b-it")
    lock = QWENS.model_copy(update={"asked": LockInput(model="gemma-4-31b-it")})
    assert not plan_with(lock, gemma).refused
    headless = lock.model_copy(update={"head": None})
    (missing,) = found(plan_with(headless, gemma), "missing-fact")
    assert "config best of huggingface-qwen has no head" in missing.message
    assert not found(
        plan_with(headless, gemma, "head_uri: s3://b/head/\nspeculation: {draft_head: mine}"), "missing-fact"
    )
    assert not plan_with(headless, gemma, "speculation: {mode: none}").refused


@pytest.mark.parametrize(
    ("extra", "lock", "said"),
    [
        (
            "placement: {instance_types: [ml.p5.48xlarge]}",
            a_lock(),
            "it has ml.g7e.2xlarge, but the spec needs ml.p5.48xlarge",
        ),
        (
            "placement: {region: eu-west-1}",
            a_lock(),
            "it is for region us-east-1, but the plan is for eu-west-1",
        ),
        ("", QWENS, "it is for model qwen3-coder-30b-a3b-instruct, but the spec has gpt-oss-20b"),
    ],
)
def test_a_lock_that_does_not_fit_the_spec_refuses_the_plan(extra: str, lock: Lock, said: str) -> None:
    plan = plan_with(lock, GPT, extra)
    assert plan.refused
    assert plan.requests == ()
    (finding,) = found(plan, "missing-fact")
    assert said in finding.message
    assert "peagle-sm lock" in finding.next_step


def test_a_lock_of_one_place_is_not_for_the_other() -> None:
    def said(place: Any) -> list[str]:
        return mismatches(a_lock(), model="gpt-oss-20b", instance_types=(), region="us-east-1", place=place)

    assert said("aws") == []
    assert said("local") == ["it was read from AWS, but this plan is for the local server"]


def test_with_source_container_a_lock_is_not_looked_at() -> None:
    extra = "source: container\nmodel_uri: s3://b/t/\nhead_uri: s3://b/h/"
    assert not found(plan_with(QWENS, GPT, extra), "missing-fact")
