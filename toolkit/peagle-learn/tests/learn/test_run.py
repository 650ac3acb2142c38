"""`learn run` after kills: each step's effect happens once, and nothing is done unconfirmed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn.commands.run import render_run_offer
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.steps import STEPS, RunState, StepCost, StepDone, inputs_hash
from peagle_learn.data import plan_data
from peagle_learn.run import RunOffer, RunStep, StepResult, run
from peagle_learn.sampling import Journal
from peagle_learn.steps import RunSteps
from peagle_learn.stored_data import target_source
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import Declined, NotFound, PeagleError, PlanRefused
from tests.learn.conftest import WEIGHTS
from tests.learn.core.test_conversations import words
from tests.local.serving import Server

SPEC = LearnSpec(name="team", target={"model": "tiny-code"}, endpoint="demo", bucket="s3://b")
TINY = {"target": {"model": "tiny-code", "uri": f"{WEIGHTS}target/"}, "head": f"{WEIGHTS}p-eagle/"}
QUIET: dict[str, Any] = {"usd_per_hour": None, "progress": lambda _: None}
Results = Mapping[str, Mapping[str, Any]]


def eight() -> list[dict[str, Any]]:
    return [{"prompt": words(random.Random(number), 25)} for number in range(8)]


class Killed(BaseException):
    """The process ends here; nothing of it runs on."""


class Clock:
    """A session's clock, which is all that a run asks of a session."""

    def now(self) -> Any:
        from datetime import UTC, datetime

        return datetime(2026, 11, 24, tzinfo=UTC)


class World:
    """Effects outside of the process, each found again by its name; a kill may come before or after each."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}
        self.left = 0
        self.gone: set[str] = set()  #: steps whose results were deleted

    def moment(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def steps(self) -> list[RunStep]:
        def step(name: Any, number: int) -> RunStep:
            before = STEPS[number - 1] if number else None

            def inputs(results: Results) -> Any:
                return [name, results.get(before or "")]

            def act(results: Results) -> StepResult:
                assert number == 0 or results[str(before)] == {"is": before}
                self.moment()
                if name not in self.made:
                    self.made[name] = 1
                    self.moment()
                else:
                    self.made[name] += 0
                return StepResult({"is": name}, 1.0)

            cost = StepCost(name, "", 1.0, 2.0)
            return RunStep(name, inputs, lambda results: cost, act, lambda result: name not in self.gone)

        return [step(name, number) for number, name in enumerate(STEPS)]


def go(world: World, work: Path, offers: list[RunOffer], until: Any = None) -> Any:
    def confirm(offer: RunOffer) -> bool:
        offers.append(offer)
        return True

    clock: Any = Clock()
    return run(
        SPEC,
        world.steps(),
        clock,
        work,
        until=until,
        usd_per_hour=2.0,
        confirm=confirm,
        progress=lambda _: None,
    )


@given(st.lists(st.integers(1, 10), max_size=8))
def test_a_run_that_is_killed_anywhere_continues_and_does_everything_once(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int]
) -> None:
    world, work = World(), tmp_path_factory.mktemp("run")
    offers: list[RunOffer] = []
    for moment in kills:
        world.left = moment
        try:
            go(world, work, offers)
        except Killed:
            continue
    world.left = 0
    state = go(world, work, offers)
    assert list(state.steps) == list(STEPS)
    assert world.made == dict.fromkeys(STEPS, 1)


def test_the_price_is_shown_once_and_a_finished_run_asks_nothing(tmp_path: Path) -> None:
    world, offers = World(), list[RunOffer]()
    go(world, tmp_path, offers, until="train")
    assert list(world.made) == ["data", "train"]
    go(world, tmp_path, offers)
    assert [(offer.usd, offer.most_usd) for offer in offers] == [(2.0, 4.0), (2.0, 4.0)]
    assert [each.is_done for each in offers[1].costs] == [True, True, False, False]
    go(world, tmp_path, offers)
    assert len(offers) == 2
    assert offers[0].pays_back[1].days == pytest.approx(2.0 / (2.0 * (1 - 1 / 1.1)) / 24)


def test_a_result_that_is_gone_is_made_again_only_if_a_later_step_needs_it(tmp_path: Path) -> None:
    world, offers = World(), list[RunOffer]()
    go(world, tmp_path, offers, until="train")
    world.gone = {"data", "train"}
    go(world, tmp_path, offers)
    assert [each.is_done for each in offers[1].costs] == [False, False, False, False]
    assert offers[1].costs[0].notes == (
        "done 2026-11-24, but its result was deleted or replaced; it starts again",
    )
    assert offers[1].costs[1].notes == ("done 2026-11-24, but an earlier step starts again; it starts again",)
    for until in (None, "train", "data"):
        go(world, tmp_path, offers, until=until)
    assert len(offers) == 2, "everything is done, so nothing is paid for again"


def test_a_run_asks_nothing_of_the_steps_after_its_last_one(tmp_path: Path) -> None:
    world = World()
    clock: Any = Clock()

    def refuse(_: Results) -> Any:
        raise NotFound("s3://later does not exist", next_step="Create it.")

    steps = [step if step.step == "data" else replace(step, inputs=refuse) for step in world.steps()]
    for _ in range(2):
        run(SPEC, steps, clock, tmp_path, until="data", confirm=lambda _: True, **QUIET)
    assert list(world.made) == ["data"]


def test_a_deleted_head_is_trained_again_and_the_offer_says_so(
    spec_of: Any, session: Session, folder: Path, bucket: str
) -> None:
    lines = eight()
    given = spec_of(lines).model_dump(mode="json", exclude_unset=True)
    own = {"training": "training.tokens.jsonl", "validation": "validation.tokens.jsonl"}
    spec = LearnSpec.model_validate({**given, **TINY, "train": own})
    work, offers = folder / "work", list[RunOffer]()
    data, train, *_ = RunSteps(spec, folder / "endpoint.yaml", folder, session, work, lambda _: None).steps()
    values = {"data": "d", "uri": f"s3://{bucket}/x/data/d/"}
    stored = {"Bucket": bucket, "Key": "x/data/d/prompts/held-out.jsonl"}
    session.client("s3").put_object(**stored, Body=b"prompts")

    def store_manifest(data: str) -> None:
        text = json.dumps({"schema": "peagle-sm/learn-data/1", "data": data, "files": {}})
        session.client("s3").put_object(Bucket=bucket, Key="x/team/data/manifest.json", Body=text.encode())

    store_manifest("d")
    trained = {"job": "team-1", "head": f"s3://{bucket}/x/team-1/output/model.tar.gz"}
    state = RunState(spec.name)
    state = state.with_step("data", StepDone(inputs_hash(data.inputs({})), values, "2026-11-24T01:02:03"))
    inputs = inputs_hash(train.inputs({"data": values}))
    state = state.with_step("train", StepDone(inputs, trained, "2026-11-25T01:02:03"))
    work.mkdir()
    (work / "state.json").write_text(state.to_json())

    def declined(offer: RunOffer) -> bool:
        offers.append(offer)
        return False

    def again() -> None:
        steps = RunSteps(spec, folder / "endpoint.yaml", folder, session, work, lambda _: None).steps()
        run(spec, steps, session, work, until="train", confirm=declined, **QUIET)

    key = "x/team-1/output/model.tar.gz"
    session.client("s3").put_object(Bucket=bucket, Key=key, Body=b"head")
    again()
    assert offers == []
    for change in (
        lambda: store_manifest("of `learn data` with other prompts"),
        lambda: session.client("s3").delete_object(Bucket=bucket, Key="x/team/data/manifest.json"),
    ):
        change()  # the proof, which is left, reads the newest set
        with pytest.raises(Declined):
            again()
        assert "data: done 2026-11-24, but its result was deleted" in render_run_offer(offers.pop())
    store_manifest("d")
    again()
    assert offers == []
    session.client("s3").delete_object(Bucket=bucket, Key=key)
    with pytest.raises(Declined):
        again()
    shown = render_run_offer(offers[0])
    line = "train: done 2026-11-25, but its result was deleted or replaced; it starts again"
    assert line in " ".join(shown.split())
    assert "data: " not in shown
    assert max(map(len, shown.splitlines())) <= 80
    session.client("s3").delete_object(**stored)
    with pytest.raises(Declined):
        again()
    assert "data: done 2026-11-24, but its result was deleted" in render_run_offer(offers[1])


def test_a_run_that_is_declined_does_nothing(tmp_path: Path) -> None:
    world = World()
    clock: Any = Clock()
    with pytest.raises(Declined):
        run(SPEC, world.steps(), clock, tmp_path, confirm=lambda _: False, **QUIET)
    assert world.made == {}
    assert list(tmp_path.iterdir()) == []


LONG = {"sequence_length": 100_000}


@pytest.mark.parametrize(
    ("people", "train", "until", "message"),
    [
        (0, LONG, None, "sequence_length: found 100000"),
        (
            0,
            {"sequence_length": 8192, "sequence_partitions": 1, "micro_batch_size": 256},
            None,
            "too little memory",
        ),
        (0, {}, None, "data.general: found nothing"),
        (0, {}, "train", "was not confirmed"),
        (0, LONG, "data", "was not confirmed"),
        # a proof's verdict is over conversations, of which each measured set needs eight
        (14, {}, None, "the held-out prompts are of 2"),
        (40, {}, None, "the general prompts are of 7"),
        (14, {}, "train", "was not confirmed"),
    ],
)
def test_what_a_later_step_would_refuse_is_told_before_an_answer_is_paid_for(
    spec_of: Any, session: Session, folder: Path, people: int, train: dict[str, Any], until: Any, message: str
) -> None:
    rng = random.Random(people)
    sets: list[Any] = [eight()]
    if people:
        sets = [
            [{"prompt": words(rng, 25), "conversation": f"p{n % people}"} for n in range(80)],
            [{"prompt": words(rng, 25), "conversation": f"g{n % 7}"} for n in range(40)],
        ]
    given = spec_of(*sets).model_dump(mode="json", exclude_unset=True)
    spec, work = LearnSpec.model_validate({**given, **TINY, "train": train}), folder / "work"
    steps = RunSteps(spec, folder / "endpoint.yaml", folder, session, work, lambda _: None).steps()
    with pytest.raises(PeagleError, match=message):
        run(spec, steps, session, work, until=until, confirm=lambda _: False, **QUIET)
    assert not work.exists()


class Billed(Session):
    """The local SageMaker with prices: without a price list, those that the spec names."""

    @property
    def is_local(self) -> bool:
        return False


class Elsewhere(Session):
    """The local SageMaker, started again: nothing of the earlier one is there any more."""

    def place(self) -> str:
        return f"{super().place()} again"


def test_other_traffic_another_place_and_other_weights_are_new_work_and_the_same_is_none(
    spec_of: Any, session: Session, endpoint: str, tmp_path: Path
) -> None:
    rng = random.Random(11)
    lines = [{"prompt": words(rng, 25)} for _ in range(8)]
    spec, offers, work = spec_of(lines), list[RunOffer](), tmp_path / "work"

    def confirm(offer: RunOffer) -> bool:
        offers.append(offer)
        return True

    def again(where: Session = session) -> str:
        """Run the first step; return its hash of inputs."""
        loop = RunSteps(spec, tmp_path / "endpoint.yaml", tmp_path, where, work, lambda _: None)
        state = run(spec, loop.steps(), where, work, until="data", confirm=confirm, **QUIET)
        return state.steps["data"].inputs

    def told(number: int) -> str:
        return offers[number].costs[0].what

    def noted(number: int) -> list[bool]:
        """Tell whether an offer says that the step starts again, and that answers are not used."""
        notes = " ".join(offers[number].costs[0].notes)
        return [said in notes for said in ("but its inputs changed; it starts again", "are not used")]

    first = again()
    assert told(0) == f"8 answers from {endpoint}"
    assert again() == first
    assert len(offers) == 1, "the same content asks nothing"

    (tmp_path / "p.jsonl").touch()
    assert again() == first
    spec_of([*lines, {"prompt": words(rng, 25)}])  # writes p.jsonl
    assert again() != first
    assert told(1) == f"1 answers from {endpoint}", "what was answered is not asked again"
    spec_of(lines)
    (work / "state.json").unlink()
    assert again() == first
    assert told(2) == f"0 answers from {endpoint}", "a lost state costs nothing"

    elsewhere = Elsewhere.from_boto3(session.to_boto3(), session.local)
    assert again(elsewhere) != first
    assert told(3) == f"8 answers from {endpoint}", "an answer of another place is none of this one"
    assert [noted(number) for number in range(4)] == [
        [False, False],
        [True, False],
        [False, False],
        [True, True],
    ]
    shown = render_run_offer(offers[3])
    assert "data: 9 answers of an earlier run are not used" in shown
    assert max(map(len, shown.splitlines())) <= 80

    source = target_source(session, endpoint)["files"]
    place, prefix = s3.split_uri(source)
    client = session.client("s3")
    client.put_object(Bucket=place, Key=f"{prefix.rstrip('/')}/other.safetensors", Body=b"other")
    try:
        assert again() != first
        assert told(4) == f"8 answers from {endpoint}", "nor of other weights at the same address"
    finally:
        client.delete_object(Bucket=place, Key=f"{prefix.rstrip('/')}/other.safetensors")


@pytest.mark.parametrize(
    ("budget", "message"), [(5.0, "train.budget_usd: found 5"), (9.0, "was not confirmed")]
)
def test_a_budget_below_the_jobs_price_is_told_before_an_answer_is_paid_for(
    spec_of: Any, session: Session, folder: Path, budget: float, message: str
) -> None:
    lines = eight()
    given = spec_of(lines).model_dump(mode="json", exclude_unset=True)
    train = {"max_hours": 2, "usd_per_hour": 4, "budget_usd": budget}
    spec = LearnSpec.model_validate({**given, **TINY, "train": train})
    billed = Billed.from_boto3(session.to_boto3(), session.local)
    work = folder / "work"
    steps = RunSteps(spec, folder / "endpoint.yaml", folder, billed, work, lambda _: None).steps()
    with pytest.raises(PeagleError, match=message) as refused:
        run(spec, steps, billed, work, until="train", confirm=lambda _: False, **QUIET)
    if budget < 8:
        assert "the job can cost 8.00 USD" in refused.value.message
    assert not work.exists()


def test_a_budget_without_a_price_is_refused_by_data_and_run(
    spec_of: Any, session: Session, folder: Path
) -> None:
    lines = eight()
    billed, work = Billed.from_boto3(session.to_boto3(), session.local), folder / "work"
    free, spec = spec_of(lines), spec_of(lines, budget_usd=5.0)
    assert plan_data(free, billed, work).offer.usd is None
    assert plan_data(spec, session, work).offer.usd == 0.0
    text = r"data\.budget_usd: found 5\.00 USD; the price of endpoint learn-data-\d+ is unknown"
    with pytest.raises(PlanRefused, match=text) as refused:
        plan_data(spec, billed, work)
    assert "pricing:GetProducts" in str(refused.value.next_step)
    steps = RunSteps(spec, folder / "endpoint.yaml", folder, billed, work, lambda _: None).steps()
    with pytest.raises(PlanRefused, match=text):
        run(spec, steps, billed, work, until="data", confirm=lambda _: True, **QUIET)
    assert not work.exists()


def test_a_budget_of_data_pays_for_all_instances_at_the_price_of_the_plan(
    spec_of: Any, session: Session, folder: Path, server: Server
) -> None:
    """No list has the price, so the endpoint's tag counts; many requests at once scale it out."""
    spec = spec_of(eight(), budget_usd=5.0)
    billed = Billed.from_boto3(session.to_boto3(), session.local)
    name = plan_data(spec, session, folder / "work").offer.endpoint
    sagemaker = server.client("sagemaker")
    arn = sagemaker.describe_endpoint(EndpointName=name)["EndpointArn"]
    tags = {
        "peagle-sm:usd-per-hour": "4",
        "peagle-sm:instance-count": "1",
        "peagle-sm:instance-bounds": "1-3",
    }
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    assert plan_data(spec, billed, folder / "work").offer.usd_per_hour == 12.0


@pytest.mark.campaign
@pytest.mark.slow
def test_data_that_is_killed_at_random_moments_asks_for_each_answer_once(
    spec_of: Any, session: Session, tmp_path: Path, server: Server
) -> None:
    rng = random.Random(7)
    spec = spec_of([{"prompt": words(rng, 25)} for _ in range(60)], concurrency=2)
    path = tmp_path / "learn.yaml"
    path.write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    port = server.url.rpartition(":")[2]
    command = [sys.executable, "-m", "peagle_sm", "learn", "data", str(path), "--yes", "--local-port", port]
    folder = tmp_path / ".peagle-learn" / "team"
    for wanted in sorted(rng.sample(range(1, 50), 3)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit and _answers(folder) < wanted:
            time.sleep(0.005)
        process.kill()  # unlike os.kill, nothing if it has ended: its id may be another process's by then
        process.communicate()
    kept = _answers(folder)
    assert kept > 0
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (journal,) = folder.glob("answers-*.jsonl")
    keys = [json.loads(line)["prompt"] for line in journal.read_text().splitlines() if '"turns"' in line]
    assert len(keys) == len(set(keys)) == 60
    assert len(Journal.open(journal).answers) == 60


def _answers(folder: Path) -> int:
    return sum(path.read_bytes().count(b'"turns"') for path in folder.glob("answers-*.jsonl"))
