"""The verdict, its sentence, and which way to host it is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.decide.costs import Hosting, TokenCosts, Traffic, equal_at, exactly
from peagle_bench.decide.decision import Decision, changes, decide, sentence
from peagle_bench.decide.section import chart, options_table
from peagle_bench.results.records import Interval

GPT = TokenCosts(0.07, 0.30)
G7E = Hosting("ml.g7e.2xlarge", "p-eagle", exactly(4.2), "list", label="P-EAGLE")
B200 = Hosting("ml.p6-b200.48xlarge", "p-eagle", Interval(142.416, 113.9328, 142.416), "EC2 x 1.25")
MEASURED = replace(G7E, serves=Interval(10_000, 9_800, 10_200), serves_source="measured at c=64")


def at(otps: float, *hostings: Hosting, used: float = 0.5, tokens: TokenCosts = GPT) -> Decision:
    return decide(Traffic(otps, 0.0, used=used), tokens, hostings or (G7E,))


@pytest.mark.parametrize(
    ("prices", "hosting", "output_only", "three_to_one"),
    [
        ((0.07, 0.30), G7E, 3_889, 2_288),
        ((0.15, 0.60), G7E, 1_944, 1_111),
        ((0.15, 0.60), replace(B200, usd_per_hour=exactly(113.9328)), 52_747, 30_141),
    ],
)
def test_published_prices_are_equal_at_the_known_rates(
    prices: tuple[float, float], hosting: Hosting, output_only: float, three_to_one: float
) -> None:
    tokens = TokenCosts(*prices)
    for read, rate in ((0.0, output_only), (3.0, three_to_one)):
        each = exactly(tokens.of(Traffic(1.0, read)))
        assert equal_at(hosting, 1, each).value == pytest.approx(rate, abs=1)


def test_below_the_rate_the_answer_is_call_whatever_an_instance_serves() -> None:
    decision = at(40)
    assert decision.verdict == "call"
    text = sentence(decision)
    assert text.startswith("Call: hosting costs at least 97 times as much at your 40 tokens/s;")
    assert text.endswith("it can win above 3,889 tokens/s.")


def test_above_the_rate_nobody_knows_until_an_instance_is_measured() -> None:
    decision = at(10_000)
    assert decision.verdict == "measure"
    assert decision.chosen.must_serve == pytest.approx(10_000)  # 2 instances at half their full load
    assert "if one ml.g7e.2xlarge serves 10,000 tokens/s" in sentence(decision)


def test_a_measured_instance_decides() -> None:
    host = at(20_000, replace(MEASURED, serves=exactly(40_000)))
    assert (host.verdict, host.chosen.instances) == ("host", 1)
    assert sentence(host) == (
        "Host: calling costs 5.1 times as much at your 20,000 tokens/s; it wins below 3,889 tokens/s."
    )


def test_an_instance_that_is_used_too_little_never_wins_and_the_sentence_says_how_much_is_enough() -> None:
    decision = at(40, replace(MEASURED, serves=exactly(5_000)))
    assert decision.chosen.wins_above is None
    assert sentence(decision).endswith("it wins only above 78% use of its instances (yours: 50%).")
    slow = at(40, replace(MEASURED, serves=exactly(1_167)))
    assert sentence(slow).endswith("it wins at no rate.")


def test_at_a_tie_it_says_tie() -> None:
    equal = at(1).chosen.wins_above
    assert equal is not None
    exact = at(equal.value, replace(MEASURED, serves=exactly(40_000)))
    assert exact.verdict == "tie"
    assert sentence(exact).startswith("Tie: hosting and calling cost the same at your 3,889 tokens/s")
    for factor, verdict in ((1.02, "host"), (0.98, "call")):
        near = at(equal.value * factor, replace(MEASURED, serves=exactly(40_000)))
        assert near.verdict == verdict


def test_a_tie_with_an_instance_that_was_not_measured_is_only_a_tie_at_best() -> None:
    equal = at(1).chosen.wins_above
    assert equal is not None
    assert sentence(at(equal.value)).startswith("Tie at best: hosting costs at least as much as calling")
    assert "hosting costs at least 0.88 to 1.10 times" in sentence(at(120_000, B200))


def test_two_or_three_instances_is_a_tie() -> None:
    decision = at(10_000, MEASURED)
    assert (decision.verdict, decision.chosen.instances) == ("tie", 2)
    assert "hosting costs 0.78 to 1.17 times as much" in sentence(decision)


def test_inside_the_interval_of_a_price_it_is_a_tie_too() -> None:
    decision = at(120_000, replace(B200, serves=exactly(1e6)))
    assert decision.verdict == "tie"
    assert "hosting costs 0.88 to 1.10 times as much" in sentence(decision)


def test_the_best_option_is_the_one_that_wins_and_then_the_cheapest() -> None:
    dear = replace(MEASURED, instance_type="ml.g7e.12xlarge", usd_per_hour=exactly(40.0))
    assert at(40, dear, MEASURED).chosen.hosting is MEASURED
    wins = replace(dear, usd_per_hour=exactly(5.0), serves=exactly(1e6))
    assert at(20_000, MEASURED, wins).chosen.hosting is wins
    fast = replace(MEASURED, mode="eagle3", serves=exactly(20_000))
    assert at(40, MEASURED, fast).chosen.hosting is fast


def test_a_mode_that_misses_the_goal_is_taken_last() -> None:
    late = replace(MEASURED, serves=exactly(1e6), misses=("TTFT p95 900 ms, limit 500 ms",))
    assert at(20_000, late, MEASURED).chosen.hosting is MEASURED
    only = at(20_000, late)
    assert only.verdict == "measure"
    assert "goal" in sentence(only)


def test_a_fault_of_the_measurement_is_no_missed_goal() -> None:
    failed = replace(MEASURED, serves=exactly(1e6), faults=("60 of 1000 requests failed",))
    decision = at(20_000, failed)
    assert decision.verdict == "measure"
    assert sentence(decision).endswith("counts: 60 of 1000 requests failed.")
    assert not any("wins" in line for line in changes(decision, None))


def test_what_changes_the_rate() -> None:
    hours, price, head = changes(at(40), None)
    assert "Mon-Fri 08:00-19:00" in hours
    assert "hosting can win above 1,273" in hours
    assert "above 2,917" in price
    assert "costs the same" in head
    (without, *_) = changes(at(40, replace(G7E, on=0.25)), "Mon 08:00-20:00 UTC")
    assert "without the hours" in without
    assert "above 3,889" in without
    measured = changes(at(40, MEASURED), None)[-1]
    assert "carries 6,000 tokens/s instead of 5,000" in measured


def test_table_and_chart_have_every_option_and_the_rate_with_its_interval() -> None:
    decision = at(40, B200)
    (calling, hosting) = options_table(decision, intervals=True).rows
    assert calling[:4] == ("Amazon Bedrock", "call", "–", "31.54")  # noqa: RUF001
    assert hosting[2:5] == ("1+", "83,171+", "131,867 [105,493, 131,867]")
    drawn = chart(decision)
    assert [text for _, text, _ in drawn.guides] == [
        "yours: 40",
        "equal: 131,867",
        "from 105,493",
    ]
    assert min(drawn.x_ticks) < 40 < 131_867 < max(drawn.x_ticks)
    assert len(drawn.series) == 2


def test_the_chart_draws_hosting_in_steps_of_whole_instances() -> None:
    serves = replace(G7E, serves=exactly(6_000))
    hosted = chart(at(3_000, serves, used=0.6)).series[1].marks
    below, above = ([mark.y for mark in hosted if low < mark.x < high] for low, high in STEP)
    assert max(below) == pytest.approx(G7E.usd_per_month(1).value)
    assert min(above) == pytest.approx(G7E.usd_per_month(2).value)


STEP = ((2_000, 3_600.0001), (3_600.0001, 5_500))
"""Rates on both sides of what one instance carries: 60% of 6,000."""
