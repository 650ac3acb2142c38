"""The metric filters, on lines as vLLM 0.32 prints them, by CloudWatch's documented rules for columns."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.ineffective import is_ineffective
from peagle_sm.core.planning import make_plan
from stacks.alarms import watches
from stacks.metrics import (
    ACCEPTED,
    DRAFTED,
    INEFFECTIVE,
    can_be_ineffective,
    filters,
    ineffective_patterns,
    watched,
)
from stacks.observability import dashboard_body
from tests.stacks.support import evaluated, plan_of, template

LINE = (
    "(APIServer pid=10746) INFO 11-20 07:55:18 [metrics.py:120] SpecDecoding metrics: "
    "Mean acceptance length: 3.94, Accepted throughput: 71.20 tokens/s, "
    "Drafted throughput: 121.00 tokens/s, Accepted: 712 tokens, Drafted: 1210 tokens, "
    "Per-position acceptance rate: 0.850, 0.712, 0.603, 0.421, 0.354, Avg Draft acceptance rate: 58.8%"
)
OTHER = (
    "(APIServer pid=10746) INFO 11-20 07:55:18 [loggers.py:335] Engine 000: "
    "Avg prompt throughput: 6.6 tokens/s, Avg generation throughput: 8.8 tokens/s, Running: 0 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%"
)


def _line(drafts: int, rates: list[float]) -> str:
    """What `SpecDecodingLogging.log` of vLLM 0.32 prints."""
    drafted = drafts * len(rates)
    accepted = round(drafts * sum(rates))
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    return (
        "INFO 11-20 07:55:18 [metrics.py:120] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {shown}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
    )


def _matched(pattern: str, line: str) -> dict[str, str] | None:
    """Return the columns of a line, None when a condition does not hold.

    Words in brackets or quotes are one column; the ellipsis stands for any number of columns.
    """
    columns = [column.strip() for column in pattern.removeprefix("[").removesuffix("]").split(",")]
    words = re.findall(r"\[[^\]]*\]|\"[^\"]*\"|\S+", line)
    assert columns[0] == "..."
    assert "..." not in columns[1:], "CloudWatch takes one ellipsis"
    if len(words) < len(columns) - 1:
        return None
    by_name = {}
    for column, word in zip(reversed(columns[1:]), reversed(words), strict=False):
        name = re.split(r"[ =<>]", column)[0]
        by_name[name] = word
        conditions = column.split("||")
        if column != name and not any(_holds(condition, word) for condition in conditions):
            return None
    return by_name


def _holds(condition: str, word: str) -> bool:
    _, operator, wanted = condition.split()
    if operator == ">=":
        return word.isdigit() and int(word) >= int(wanted)
    assert operator == "="
    return word == wanted.strip('"') if wanted.startswith('"') else fnmatch.fnmatchcase(word, wanted)


def _counted(line: str, name: str = "five") -> dict[str, float]:
    """What the filters of an endpoint with K = 5 make of a line."""
    totals: dict[str, float] = {}
    for entry in filters(watched(plan_of(name))):
        columns = _matched(entry.pattern, line)
        if columns is not None:
            value = float(columns[entry.value[1:]]) if entry.value.startswith("$") else float(entry.value)
            totals[entry.metric] = totals.get(entry.metric, 0) + value
    return totals


def test_the_counts_are_read_from_a_line_of_the_engine() -> None:
    assert _counted(LINE) == {ACCEPTED: 712, DRAFTED: 1210}


@pytest.mark.parametrize(
    "line", [OTHER, "", "Traceback (most recent call last):", LINE.replace("Accepted:", "x")]
)
def test_any_other_line_counts_nothing(line: str) -> None:
    assert _counted(line) == {}


def test_a_collapse_after_the_first_token_is_counted_once() -> None:
    """The rates of a P-EAGLE head that was run sequentially: acceptance length 1.9."""
    assert _counted(_line(900, [0.88, 0.022, 0.001, 0.001, 0.0]))[INEFFECTIVE] == 1


def test_too_few_drafts_say_nothing() -> None:
    assert INEFFECTIVE not in _counted(_line(199, [0.82, 0.02, 0.0, 0.0, 0.0]))
    assert INEFFECTIVE in _counted(_line(200, [0.82, 0.02, 0.0, 0.0, 0.0]))


thousandths = st.integers(0, 1000)


@given(thousandths, thousandths, st.integers(200, 5000))
def test_a_counted_line_keeps_the_rule_of_the_core(first: int, second: int, drafts: int) -> None:
    kept = round(drafts * first / 1000), round(drafts * min(first, second) / 1000)
    line = _line(drafts, [kept[0] / drafts, kept[1] / drafts, 0.0, 0.0, 0.0])
    matching = sum(_matched(pattern, line) is not None for _, pattern in ineffective_patterns(5))
    assert matching <= 1
    if matching:
        assert is_ineffective(drafts, *kept)


@given(st.integers(500, 1000))
def test_a_line_without_any_second_token_counts(first: int) -> None:
    assert INEFFECTIVE in _counted(_line(1000, [first / 1000, 0.0, 0.0, 0.0, 0.0]))


def test_a_pattern_is_as_short_as_cloudwatch_takes_it() -> None:
    assert max(len(pattern) for _, pattern in ineffective_patterns(20)) <= 1024


def test_the_series_of_drafted_tokens_exists_before_the_first_draft() -> None:
    """`no-drafts` fills gaps with 0, but CloudWatch fills nothing in a series that never existed."""
    created = evaluated(template("five"))
    defaults = {
        transformation["MetricName"]: transformation.get("DefaultValue")
        for row in created.values()
        if row["Type"] == "AWS::Logs::MetricFilter"
        for transformation in row["Properties"]["MetricTransformations"]
    }
    assert defaults == {ACCEPTED: None, DRAFTED: 0, INEFFECTIVE: None}


#: Conditions as the examples of CloudWatch's "Filter pattern syntax" page write them for columns.
_DOCUMENTED = (
    r'\w+ = "[^"]*"',  # [time, component = "HttpServer"], as the CDK's FilterPattern writes it
    r"\w+ (?:>=|>|<|<=) \d+",  # bytes > 1000
    r"\w+ = [\w.]*\*(?: \|\| \w+ = [\w.]*\*)*",  # request =*.html*, status_code = 4*, a || b
)


@pytest.mark.parametrize("tokens", [1, 2, 5, 20])
def test_patterns_use_only_documented_forms(tokens: int) -> None:
    endpoint = replace(watched(plan_of("five")), tokens=tokens)
    for entry in filters(endpoint):
        columns = entry.pattern.removeprefix("[").removesuffix("]").split(", ")
        assert columns[0] == "...", "documented: an ellipsis stands for any number of fields"
        names = [re.split(r"\W", column)[0] for column in columns[1:]]
        assert len(set(names)) == len(names)
        for column in columns[1:]:
            assert re.fullmatch(r"\w+", column) or any(re.fullmatch(form, column) for form in _DOCUMENTED)


@pytest.mark.parametrize(
    ("rows", "ineffective", "no_drafts", "length"),
    [
        ([[1, 4, 5], [5, 8, 3]], True, True, False),
        ([[1, 4, 5], [5, 8, 0]], True, False, False),
        ([[1, 4, 5], [5, 8, 1]], False, True, False),
        (None, True, True, True),
    ],
)
def test_a_table_of_k_raises_no_false_alarm(
    rows: list[list[int]] | None, ineffective: bool, no_drafts: bool, length: bool
) -> None:
    """K 1 has no second token, and K 0 no drafts; with several K the log lacks the tokens of a step."""
    ks = frozenset(row[2] for row in rows) if rows else frozenset({5})
    endpoint = replace(watched(plan_of("five")), ks=ks)
    assert can_be_ineffective(endpoint) == ineffective
    assert (INEFFECTIVE in {entry.metric for entry in filters(endpoint)}) == ineffective
    assert ("no-drafts" in {rule.key for rule in watches(endpoint)}) == no_drafts
    from_text = replace(endpoint, always_drafts=False)
    assert "no-drafts" not in {rule.key for rule in watches(from_text)}, "text may repeat nothing"
    assert ("Acceptance at K = 5" in json.dumps(dashboard_body(endpoint, [], ""))) == length


def test_the_ks_of_an_endpoint_are_those_of_its_table() -> None:
    plan = plan_of("five")
    table = ((1, 4, 5), (5, 8, 0))
    speculation = plan.spec.speculation.model_copy(update={"num_speculative_tokens_per_batch_size": table})
    spec = plan.spec.model_copy(update={"speculation": speculation})
    assert watched(make_plan(spec, plan.context)).ks == {5, 0}
    assert watched(plan).ks == {5}
    assert watched(plan_of("smollm2-none")).ks == frozenset()


def test_nothing_is_filtered_without_speculation() -> None:
    assert filters(watched(plan_of("smollm2-none"))) == ()
    assert {entry.metric for entry in filters(watched(plan_of("smollm2-eagle3")))} == {ACCEPTED, DRAFTED}
