"""What each check of a run against its record says, and what keeps two runs from being compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from peagle_bench.regression.checks import RecordCheck, Rules
from peagle_bench.regression.judging import judge, unusable
from peagle_bench.regression.junit import junit_xml
from peagle_bench.regression.record import (
    ArmFacts,
    RunFacts,
    differences,
    facts_of,
    refuse_differences,
    sides_of,
    slim,
)
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import Results, read, to_line
from peagle_sm.core.errors import SpecError
from tests.bench.regression.worlds import ALONE, EIGHT, Change, World

THREE = ("none", "eagle3", "p-eagle")
SLOWER = Change(seconds=(("p-eagle", 1.2),))


def found(checks: list[RecordCheck], mode: str, name: str) -> RecordCheck:
    (check,) = [each for each in checks if (each.mode, each.name) == (mode, name)]
    return check


def test_each_mode_is_judged_on_its_own() -> None:
    world = World(modes=THREE, prompts=60, endpoints=0.002)
    checks = judge(world.run(0), world.run(1, SLOWER))
    assert {(each.mode, each.name): each.result for each in checks} == {
        ("none", "answers"): "pass",
        ("eagle3", "speed"): "pass",
        ("eagle3", "acceptance"): "pass",
        ("eagle3", "answers"): "pass",
        ("p-eagle", "speed"): "FAIL",
        ("p-eagle", "acceptance"): "pass",
        ("p-eagle", "answers"): "pass",
    }
    speed = found(checks, "p-eagle", "speed")
    assert speed.record is not None
    assert speed.run is not None
    assert speed.change is not None
    assert speed.change.value == pytest.approx(1 / 1.2, rel=0.03)
    assert speed.run / speed.record == pytest.approx(speed.change.value)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (World(prompts=12, noise=0.2, deployments=3, endpoints=0), "prompts (now 12)"),
        (World(prompts=64, noise=0.01, over_prompts=0, endpoints=0), "2 deployments in both runs"),
    ],
    ids=["prompts", "deployments"],
)
def test_what_cannot_be_decided_says_what_it_needs(world: World, expected: str) -> None:
    # A slowdown of 5.5% is nearer to the margin than the interval reaches.
    change = Change(seconds=(("p-eagle", 1.055),))
    checks = (
        found(judge(own.run(0), own.run(1, change)), "p-eagle", "speed")
        for own in (replace(world, seed=seed) for seed in range(10))
    )
    undecided = [check for check in checks if check.undecided]
    assert undecided
    assert all(check.needed and expected in check.needed and expected in check.reason for check in undecided)


def test_a_wider_margin_lets_a_slower_run_pass() -> None:
    world = World(prompts=60, endpoints=0.002)
    before, now = world.run(0), world.run(1, Change(seconds=(("p-eagle", 1.12),)))
    assert found(judge(before, now), "p-eagle", "speed").result == "FAIL"
    assert found(judge(before, now, Rules(margin=0.2)), "p-eagle", "speed").result == "pass"


def test_a_slowdown_of_all_modes_alike_is_found_by_their_rates_alone() -> None:
    world = World(prompts=60, endpoints=0.002, wander=0.0)
    before = world.run(0)
    now = world.run(1, Change(seconds=(("none", 1.2), ("p-eagle", 1.2))))
    checks = judge(before, now, Rules(rates=True))
    assert found(checks, "p-eagle", "speed").result == "pass"
    assert found(checks, "p-eagle", "rate").result == "FAIL"
    assert found(checks, "none", "rate").result == "FAIL"
    assert not [each for each in judge(before, now) if each.name == "rate"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(failed=frozenset(("p-eagle", prompt) for prompt in range(3))), "3 of 40 requests"),
        (Change(failed=frozenset(("none", prompt) for prompt in range(3))), "requests of none"),
    ],
)
def test_failed_requests_leave_the_speed_undecided(change: Change, reason: str) -> None:
    world = World(prompts=40)
    speed = found(judge(world.run(0), world.run(1, change)), "p-eagle", "speed")
    assert speed.undecided
    assert reason in speed.reason
    assert "this run" in speed.reason


def test_a_failed_control_leaves_the_speed_undecided_but_not_the_answers() -> None:
    world = World(prompts=40)
    now = world.run(1)
    slow = [
        replace(each, done_s=each.done_s + 1.0) if each.arm == "none (A/A)" else each for each in now.requests
    ]
    checks = judge(world.run(0), replace(now, requests=tuple(slow)))
    assert "A/A control" in found(checks, "p-eagle", "speed").reason
    assert found(checks, "p-eagle", "speed").undecided
    assert found(checks, "p-eagle", "acceptance").result == "pass"
    assert found(checks, "p-eagle", "answers").result == "pass"
    assert unusable(replace(now, requests=tuple(slow))) is not None
    assert unusable(now) is None


def test_too_few_prompts_are_not_decided() -> None:
    world = World(prompts=6)
    checks = judge(world.run(0), world.run(1))
    assert {each.result for each in checks} == {"undecided"}


def test_nothing_accepted_any_more_is_a_fall() -> None:
    world = World(prompts=40)
    checks = judge(world.run(0), world.run(1, Change(accepted=(("p-eagle", 0.0),))))
    assert found(checks, "p-eagle", "acceptance").result == "FAIL"


def test_another_k_is_judged_by_its_speed_alone() -> None:
    world = World(prompts=40)
    checks = judge(world.run(0), world.run(1), Rules(changed=("k",)))
    assert found(checks, "p-eagle", "acceptance").result == "not applicable"


def test_sampled_answers_are_not_compared() -> None:
    world = World(prompts=40, temperature=0.7)
    assert found(judge(world.run(0), world.run(1)), "p-eagle", "answers").result == "not applicable"


@pytest.mark.parametrize("mode", ["none", "p-eagle"])
def test_one_changed_answer_in_one_of_two_deployments_fails(mode: str) -> None:
    world = World(prompts=40, deployments=2)
    now = world.run(1)
    second = [
        replace(each, output_sha256="f" * 64)
        if each.arm.startswith(f"{mode}@2") and each.prompt_id == "p7"
        else each
        for each in now.requests
    ]
    check = found(judge(world.run(0), replace(now, requests=tuple(second))), mode, "answers")
    assert check.result == "FAIL"
    assert "p7" in check.reason


def test_where_the_target_differs_from_itself_a_change_never_passes_in_silence() -> None:
    world = World(prompts=60, jitter=0.05, load=EIGHT)
    before = world.run(0)
    few = found(judge(before, world.run(1)), "p-eagle", "answers")
    assert few.undecided
    assert few.needed is not None
    assert "peagle-sm verify" in few.needed
    many = Change(answers=frozenset(("p-eagle", prompt) for prompt in range(40)))
    assert found(judge(before, world.run(1, many)), "p-eagle", "answers").result == "FAIL"


def test_only_the_first_changed_turn_of_a_conversation_counts() -> None:
    def in_turns(results: Results) -> Results:
        turns = [
            replace(each, prompt_id=f"p{int(each.prompt_id[1:]) // 4}", turn=int(each.prompt_id[1:]) % 4)
            for each in results.requests
        ]
        return replace(results, requests=tuple(turns))

    world = World(prompts=80)
    change = Change(answers=frozenset(("p-eagle", prompt) for prompt in (41, 42, 43)))
    check = found(judge(in_turns(world.run(0)), in_turns(world.run(1, change))), "p-eagle", "answers")
    assert check.result == "FAIL"
    assert check.reason.startswith("1 of 78 answers changed: p10")


def test_a_slim_record_judges_as_the_whole_file_and_has_no_text(tmp_path: Path) -> None:
    world = World(prompts=40, deployments=2)
    whole = world.run(0)
    texts = [replace(each, text="a secret", histogram=(1, 2, 3)) for each in whole.requests]
    lines = [to_line(each) for each in slim(replace(whole, requests=tuple(texts)))]
    path = tmp_path / "record.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert "secret" not in path.read_text()
    assert path.stat().st_size < 450 * len(whole.requests)
    now = world.run(1, SLOWER)
    assert judge(read(path), now) == judge(whole, now)


def test_arms_are_found_by_mode_in_every_deployment() -> None:
    sides = sides_of(World(prompts=8, modes=THREE, deployments=3).run(0))
    assert {mode: [arm.name for arm in side.arms] for mode, side in sides.items()} == {
        "none": ["none", "none@2", "none@3"],
        "eagle3": ["eagle3", "eagle3@2", "eagle3@3"],
        "p-eagle": ["p-eagle", "p-eagle@2", "p-eagle@3"],
    }
    assert sides["none"].same_endpoint(sides["none"].arms[1]) == ["none@2", "none@2 (A/A)"]


@pytest.mark.parametrize(
    ("arm", "changed", "expected"),
    [
        ({"k": 7}, (), ["mode p-eagle: K 5 in the record, now 7"]),
        ({"k": 7}, ("k",), []),
        ({"image": "0.33.0"}, (), ["mode p-eagle: image 0.32.0-gpu in the record, now 0.33.0"]),
        ({"image": "0.33.0"}, ("engine",), []),
        ({"instance": "2 x ml.g6e.2xlarge"}, ("engine",), ["instance 1 x ml.g6e.2xlarge"]),
        ({"instance": "1 x ml.p5.48xlarge"}, ("instance",), []),
        ({"model": "theirs"}, ("k", "engine", "instance"), ["mode p-eagle: model mine in the record"]),
        ({"k": None, "image": None, "instance": None, "model": None}, (), []),
    ],
)
def test_a_difference_of_a_mode_is_named_unless_it_is_tested(
    arm: dict[str, object], changed: tuple[str, ...], expected: list[str]
) -> None:
    record = facts_of(World(prompts=8).run(0))
    same = record.arms["p-eagle"]
    assert same == ArmFacts(5, "mine", "1 x ml.g6e.2xlarge", "0.32.0-gpu", None)
    run = RunFacts(record.settings, {**record.arms, "p-eagle": replace(same, **arm)})  # type: ignore[arg-type]
    lines = differences(record, run, changed)
    assert len(lines) == len(expected)
    assert all(part in line for part, line in zip(expected, lines, strict=True))


def test_a_refusal_names_the_option_for_a_difference_that_is_tested() -> None:
    record = facts_of(World(prompts=8).run(0))
    other = {mode: replace(arm, image="0.33.0") for mode, arm in record.arms.items()}
    with pytest.raises(SpecError, match=r"image 0\.32\.0-gpu in the record") as caught:
        refuse_differences("r.jsonl", record, RunFacts(record.settings, other))
    assert "--changed engine" in str(caught.value.next_step)
    prompts = RunFacts({**record.settings, "requests_sha256": "other"}, record.arms)
    with pytest.raises(SpecError, match="requests") as caught:
        refuse_differences("r.jsonl", record, prompts)
    assert "--changed" not in str(caught.value.next_step)


CHECKS = (
    RecordCheck("speed", "p-eagle", ALONE, False, "fell by\x00 5% <&>", 1.4, 1.2, Interval(0.86, 0.8, 0.9)),
    RecordCheck("acceptance", "p-eagle", ALONE, None, "too wide"),
    RecordCheck("answers", "p-eagle", ALONE, None, "sampled", applicable=False),
    RecordCheck("answers", "none", ALONE, True, "", 16, 16),
)


@pytest.mark.parametrize(
    ("allow_undecided", "kinds"),
    [(False, ["failure", "error", "skipped", None]), (True, ["failure", "skipped", "skipped", None])],
)
def test_junit_has_one_case_for_each_check(allow_undecided: bool, kinds: list[str | None]) -> None:
    text = junit_xml(CHECKS, name="r.jsonl", timestamp="2026-11-28T12:00:00", allow_undecided=allow_undecided)
    root = ElementTree.fromstring(text.encode())
    (suite,) = root
    outcomes = []
    for case in suite.iter("testcase"):
        assert set(case.keys()) == {"classname", "name", "time"}
        tags = [child.tag for child in case if child.tag != "system-out"]
        outcomes.append(tags[0] if tags else None)
    assert outcomes == kinds
    for name in ("failure", "error"):
        assert suite.get(f"{name}s") == root.get(f"{name}s") == str(kinds.count(name))
    assert suite.get("skipped") == str(kinds.count("skipped"))
    # Of junit-10.xsd of Jenkins' xunit-plugin.
    assert set(root.keys()) <= {"name", "time", "tests", "failures", "errors"}
    assert set(suite.keys()) <= {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"}
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "fell by? 5% <&>"
    assert "record 1.40x, this run 1.20x, change -14.0% [-20.0%, -10.0%]" in str(failure.text)
