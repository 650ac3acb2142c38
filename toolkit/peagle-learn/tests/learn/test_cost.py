"""What `learn run` says of money before it starts, and whether a budget pays for one epoch of large data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_learn import jobs
from peagle_learn import train as learning
from peagle_learn.commands.run import render_run_offer
from peagle_learn.core.price import Duration, epoch_findings
from peagle_learn.core.spec import LearnSpec, TrainSpec
from peagle_learn.core.steps import RunState, StepCost
from peagle_learn.run import RunStep, finished_of, offer_of, open_state
from peagle_learn.steps import RunSteps
from peagle_learn.stored_data import COUNTED_BYTES
from peagle_learn.training_facts import read_price
from peagle_sm.aws.session.session import Session
from tests.aws.test_prices import INSTANCE, answering, product
from tests.learn.test_train import scripted, start
from tests.local.serving import eventually

Make = Callable[..., LearnSpec]


def of_hours(hours: float, **train: Any) -> LearnSpec:
    train = {"instance_type": INSTANCE, "max_hours": hours, **train}
    return LearnSpec(name="team", target={"model": "tiny-code"}, bucket="s3://b", train=train)


def test_the_training_is_priced_from_aws_s_price_list() -> None:
    session = answering(product(f"USE1-Train:{INSTANCE}", "10"))
    assert read_price(of_hours(2, instance_count=3), session, INSTANCE).max_usd == 60.0


def test_the_spec_s_price_counts_where_the_list_has_none_and_nothing_is_billed_locally(
    local: Session,
) -> None:
    session = answering()
    assert read_price(of_hours(2, usd_per_hour=4), session, INSTANCE).max_usd == 8.0
    assert read_price(of_hours(2), local, INSTANCE).max_usd == 0.0


def test_an_unknown_part_makes_the_sum_and_the_pay_back_unknown_and_says_what_to_do(tmp_path: Path) -> None:
    costs = (
        StepCost("data", "", 1.0, 2.0),
        StepCost("prove", "", None, None, unknown="set train.usd_per_hour"),
    )
    steps = [RunStep(cost.step, lambda _: [], lambda _, cost=cost: cost, lambda _: None) for cost in costs]  # type: ignore[misc,arg-type,return-value]
    finished = finished_of(steps, open_state(tmp_path / "state.json", "team"))
    offer = offer_of("team", steps, finished, 5.0)
    document = json.loads(json.dumps(offer.to_dict()))
    assert (document["usd"], document["most_usd"]) == (None, None)
    assert {each["days"] for each in document["pays_back"]} == {None}
    shown = render_run_offer(offer)
    assert "about unknown, at most unknown" in shown
    assert "train.usd_per_hour" in " ".join(shown.split())
    assert "unknown, as the cost is" in shown
    assert "never" not in shown
    assert " days" not in shown


@pytest.mark.parametrize(
    ("results", "unless"),
    [
        ({}, "unless it trains on the same data, which continues it, or you want both."),
        ({"data": {"data": "a" * 64}}, "unless you want both."),
    ],
    ids=["data-to-come", "data-done"],
)
def test_the_offer_of_a_run_names_the_jobs_that_run_already(
    local: Session, folder: Path, make_spec: Make, results: dict[str, dict[str, Any]], unless: str
) -> None:
    first = learning.plan_training(make_spec("run-beside", learning_rate=2e-4), local, folder)
    first = scripted(first.as_attempt(2 + len(results)), hold="always")
    start(local, first)
    loop = RunSteps(
        make_spec("run-beside"), folder / "endpoint.yaml", folder, local, folder / "w", lambda _: None
    )
    train = next(each for each in loop.steps() if each.step == "train")
    step = replace(train, inputs=lambda _: [], cost=lambda _: train.cost(results))
    offer = offer_of("run-beside", [step], finished_of([step], RunState("run-beside")), None)
    jobs.stop(local, first.job)
    eventually(lambda: not jobs.job_state(local, first.job).job.running)
    command = f"`peagle-sm learn stop {first.job}{local.command_flags()}`, {unless}"
    assert any(line.endswith(command) for line in render_run_offer(offer).splitlines()), "in one line"
    ((told,),) = (each["findings"] for each in json.loads(json.dumps(offer.to_dict()))["costs"])
    assert first.job in told["message"]
    assert command in told["next_step"]


def large(session: Session, spec: LearnSpec, tokens: int) -> str:
    """Store a set of more data than is read before a job, and its manifest; return the set's address."""
    s3, data = session.api("s3"), "a" * 64
    line = json.dumps({"input_ids": [1] * 5000, "loss_mask": [1] * 5000, "conversation": "c"}) + "\n"
    content = line.encode() * (COUNTED_BYTES // len(line) + 1)
    files = {
        "training/train.tokens.jsonl": {"size": len(content), "rows": 9, "conversations": 3, "tokens": tokens}
    }
    manifest = {
        "schema": "peagle-sm/learn-data/1",
        "data": data,
        "target": {"model": "tiny-code", "revision": None},
        "files": files,
    }
    prefix = spec.folder.removeprefix("s3://learn-tests/") + "data/"
    s3.put_object(Bucket="learn-tests", Key=f"{prefix}{data[:16]}/training/train.tokens.jsonl", Body=content)
    s3.put_object(Bucket="learn-tests", Key=f"{prefix}manifest.json", Body=json.dumps(manifest).encode())
    return f"{spec.folder}data/{data[:16]}/training/"


def epoch_of(session: Session, folder: Path, spec: LearnSpec) -> list[tuple[str, str]]:
    plan = learning.plan_training(spec, session, folder)
    return [(each.severity, each.message) for each in plan.findings if each.check == "epoch"]


def test_large_data_is_counted_by_its_manifest_and_other_data_is_said_to_be_unchecked(
    local: Session, folder: Path, make_spec: Make
) -> None:
    def spec(training: str | None = None) -> LearnSpec:
        return make_spec("large", training=training, validation=None, max_hours=1)

    place = large(local, spec(), tokens=10**9)
    ((severity, said),) = epoch_of(local, folder, spec())
    assert severity == "error"
    assert "one epoch of 1,000,000,000 tokens" in said
    assert epoch_of(local, folder, spec(place)) == [(severity, said)]
    s3 = local.api("s3")
    key = place.removeprefix("s3://learn-tests/") + "train.tokens.jsonl"
    s3.copy_object(
        Bucket="learn-tests", Key="mine/a.tokens.jsonl", CopySource={"Bucket": "learn-tests", "Key": key}
    )
    ((severity, said),) = epoch_of(local, folder, spec("s3://learn-tests/mine/"))
    assert severity == "warning"
    assert "the budget, could not be checked: the data is too large to count" in said
    manifest = key.partition("/data/")[0] + "/data/manifest.json"
    s3.delete_object(Bucket="learn-tests", Key=manifest)
    assert epoch_of(local, folder, spec(place))[0][0] == "warning"


@pytest.mark.parametrize(("values", "count"), [({"epochs": 2}, 1), ({"epochs": 2, "max_steps": 5}, 0)])
def test_an_unknown_speed_leaves_the_budget_unchecked_and_says_why(
    values: dict[str, int], count: int
) -> None:
    slow = Duration(None, "unknown: no speed of H900 is known here")
    rows = list(epoch_findings(TrainSpec(), values, 1000, slow, 1))
    assert len(rows) == count
    assert all("could not be checked: its speed is unknown: no speed of H900" in one.message for one in rows)
