"""How often the gate is wrong: 200 unchanged pairs of runs, and 200 of each change, from seeded worlds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from peagle_bench.regression.checks import Rules
from peagle_bench.regression.judging import judge
from peagle_bench.results.result_file import Results
from tests.bench.regression.worlds import EIGHT, Change, World

PAIRS = 200
#: Ordinary noise of requests and machine; the endpoints differ by 0.5%.
QUIET = World(prompts=32, endpoints=0.005)
#: Endpoints differ by 1%, as is assumed of them. One deployment then leaves some slowdowns undecided.
ONE_DEPLOYMENT = World(prompts=64)
THREE_DEPLOYMENTS = World(prompts=64, deployments=3)
NOISY = World(prompts=164, deployments=3, noise=0.04, over_prompts=0.4, over_lengths=0.8)
IN_BLOCKS = World(prompts=96, deployments=3, load=EIGHT)

SLOWER = Change(seconds=(("p-eagle", 1 / 0.9),))
LESS_ACCEPTED = Change(accepted=(("p-eagle", 0.8),))
OTHER_ANSWER = Change(answers=frozenset({("p-eagle", 17)}))


@cache
def record_of(world: World) -> Results:
    return world.run(0)


def counts(world: World, change: Change | None, *names: str, rules: Rules | None = None) -> Counter[str]:
    """Count the worst result of the named checks of P-EAGLE; each pair has prompts, days and endpoints."""
    results: Counter[str] = Counter()
    for seed in range(PAIRS):
        own = replace(world, seed=seed)
        checks = judge(record_of(own), own.run(1, change), rules)
        of_mode = {check.result for check in checks if check.name in names and check.mode == "p-eagle"}
        results[min(of_mode, key=("FAIL", "undecided", "pass", "not applicable").index)] += 1
    return results


ALL = ("speed", "acceptance", "answers")


def test_no_unchanged_pair_is_an_alarm_and_each_slowdown_by_a_tenth_is_one() -> None:
    assert counts(QUIET, None, *ALL) == {"pass": PAIRS}
    assert counts(QUIET, SLOWER, "speed") == {"FAIL": PAIRS}


@pytest.mark.parametrize(
    ("change", "name"), [(LESS_ACCEPTED, "acceptance"), (OTHER_ANSWER, "answers")], ids=["less", "other"]
)
def test_each_fall_of_acceptance_by_a_fifth_and_each_changed_answer_is_an_alarm(
    change: Change, name: str
) -> None:
    assert counts(QUIET, change, name) == {"FAIL": PAIRS}


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("world", [THREE_DEPLOYMENTS, NOISY, IN_BLOCKS], ids=["three", "noisy", "blocks"])
def test_three_deployments_of_endpoints_that_differ_by_a_percent(world: World) -> None:
    unchanged, slower = (counts(world, change, *ALL) for change in (None, SLOWER))
    assert unchanged["FAIL"] == 0
    assert unchanged["pass"] >= 0.97 * PAIRS
    assert slower["FAIL"] >= 0.97 * PAIRS
    assert slower["pass"] == 0


@pytest.mark.campaign
@pytest.mark.slow
def test_one_deployment_may_be_undecided_but_is_not_wrong() -> None:
    unchanged, slower = (counts(ONE_DEPLOYMENT, change, *ALL) for change in (None, SLOWER))
    assert (unchanged["FAIL"], slower["pass"]) == (0, 0)
    assert unchanged["pass"] >= 0.9 * PAIRS
    assert slower["FAIL"] >= 0.85 * PAIRS


@pytest.mark.campaign
@pytest.mark.slow
def test_endpoints_that_differ_by_more_than_is_assumed_are_wrong_until_that_is_said() -> None:
    """The price of the assumption: of one deployment nothing shows that endpoints differ by 2%."""
    assert counts(replace(ONE_DEPLOYMENT, endpoints=0.02), None, *ALL)["FAIL"] > 0
    world, said = replace(THREE_DEPLOYMENTS, endpoints=0.02), Rules(endpoint_spread=0.02)
    unchanged, slower = (counts(world, change, *ALL, rules=said) for change in (None, SLOWER))
    assert (unchanged["FAIL"], slower["pass"]) == (0, 0)
