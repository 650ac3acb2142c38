"""Published figures beside measured ones: what agrees, what differs, and what says nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.published import (
    LinedUp,
    differences,
    lifetime_hours,
    line_up,
    scale_of,
    specs_for,
    staging,
    stand_in_specs,
)
from peagle_bench.published import PublishedTable, load_published
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Header, Interval, Load, PointRecord
from peagle_bench.results.result_file import Results
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.spec.endpoint_spec import Mode
from tests.bench.compare.simulating import ALONE, request
from tests.bench.compare.test_notes import FINE, SLOW, point

CATALOG = load_catalog()
STATED = (
    load_published()
    .table("gpt-oss-20b-mt-bench")
    .model_copy(update={"engine": "0.30.0", "unstated": (), "concurrency": (1, 8)})
)
"""A table of which the source states the whole set-up."""
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
MODES: tuple[Mode, ...] = ("none", "eagle3", "p-eagle")
KS: dict[Mode, int] = {"eagle3": 3, "p-eagle": 7}


def specs(table: PublishedTable = STATED) -> dict[str, Any]:
    (made,) = specs_for("demo", table, MODES, KS, CATALOG, artifacts="s3://bucket/p/", minutes=60)
    return {mode: spec.model_dump(mode="json", exclude_unset=True) for mode, spec in made.items()}


def header(**config: Any) -> Header:
    usual = {
        "published": "demo",
        "specs": specs(),
        "max_tokens": 2048,
        "workload": {"name": "mt-bench", "prompts": 80, "available": 80, "notes": []},
    }
    origin = {"endpoints": {mode: {"image": IMAGE} for mode in MODES}}
    return Header("run", "compare", {**usual, **config}, origin, stand_in_weights=False)


def arms(instance_type: str = "ml.p6-b200.48xlarge", p_eagle: int = 7) -> tuple[ArmRecord, ...]:
    used: dict[Mode, int] = {**KS, "p-eagle": p_eagle}
    found = [ArmRecord(mode, mode, used.get(mode), mode, instance_type=instance_type) for mode in MODES]
    return (*found, replace(found[0], name="none (A/A)", control=True))


def compared(low: float, high: float, load: Load = ALONE) -> ComparisonRecord:
    middle = Interval((low * high) ** 0.5, low, high)
    return ComparisonRecord("p-eagle", "eagle3", load, middle, "prompts", 80, 1, None, None)


def points(load: Load = ALONE, client: Any = FINE) -> tuple[PointRecord, ...]:
    return tuple(replace(point(client), arm=mode, load=load, otps=900.0) for mode in MODES)


def measured(
    *rows: ComparisonRecord, head: Header | None = None, arms_: tuple[ArmRecord, ...] | None = None
) -> Results:
    # 20 prompts: p-eagle accepts 2.7 of each draft, so its acceptance length is 3.70, as published
    requests = tuple(
        request("p-eagle", f"p{n}", seconds=0.1 + n / 1000, tokens=100, drafts=27, accepted=73)
        for n in range(20)
    )
    return Results(head or header(), arms_ or arms(), requests, points(), rows)


def row(results: Results, label: str, concurrency: int | None, table: PublishedTable = STATED) -> LinedUp:
    found = line_up(table, results, CATALOG).rows
    return next(r for r in found if (r.figure.label, r.figure.concurrency) == (label, concurrency))


def test_with_the_published_set_up_a_figure_agrees_or_differs() -> None:
    assert list(differences(STATED, measured(), CATALOG)) == []
    agrees = row(measured(compared(1.4, 1.7)), "p-eagle over eagle3", 1)
    assert (agrees.result, agrees.reason) == ("agrees", None)
    assert agrees.against is not None
    assert agrees.against.low == pytest.approx(1.4 / 1.55)
    differs = row(measured(compared(1.2, 1.4)), "p-eagle over eagle3", 1)
    assert differs.result == "differs"


def test_a_published_figure_is_rounded() -> None:
    assert row(measured(compared(1.554, 1.7)), "p-eagle over eagle3", 1).result == "agrees"
    assert row(measured(compared(1.556, 1.7)), "p-eagle over eagle3", 1).result == "differs"


def test_what_the_source_does_not_state_leaves_a_difference_undecided() -> None:
    table = STATED.model_copy(update={"engine": None})
    (open_,) = differences(table, measured(), CATALOG)
    assert (open_.what, open_.unstated, open_.measured) == ("vLLM", True, "0.30.0")
    assert row(measured(compared(1.2, 1.4)), "p-eagle over eagle3", 1, table).result == "not decided"
    assert row(measured(compared(1.5, 1.6)), "p-eagle over eagle3", 1, table).result == "agrees"


OTHERS: dict[str, tuple[str, Results]] = {
    "hardware": ("hardware", measured(arms_=arms("ml.g7e.2xlarge"))),
    "engine": (
        "vLLM",
        measured(
            head=replace(
                header(), provenance={"endpoints": {"none": {"image": IMAGE.replace("0.30", "0.31")}}}
            )
        ),
    ),
    "prompts": (
        "prompts",
        measured(head=header(workload={"name": "mt-bench", "prompts": 8, "available": 80, "notes": []})),
    ),
    "changed prompts": (
        "prompts",
        measured(head=header(workload={"prompts": 80, "available": 80, "notes": ["its SHA-256 differs"]})),
    ),
    "tokens": ("output tokens", measured(head=header(max_tokens=64))),
    "model": (
        "model",
        measured(head=header(specs={mode: {**spec, "model": "tiny-code"} for mode, spec in specs().items()})),
    ),
    "flags": (
        "flags of none",
        measured(head=header(specs={**specs(), "none": {**specs()["none"], "serving": {}}})),
    ),
    "head": (
        "head of p-eagle",
        measured(
            head=header(
                specs={
                    **specs(),
                    "p-eagle": {
                        **specs()["p-eagle"],
                        "speculation": {"mode": "p-eagle", "draft_head": "gpt-oss-20b-p-eagle-long-context"},
                    },
                }
            )
        ),
    ),
}


@pytest.mark.parametrize(("what", "results"), OTHERS.values(), ids=OTHERS)
def test_another_set_up_is_named_and_never_reads_like_a_failure(what: str, results: Results) -> None:
    results = replace(results, comparisons=(compared(0.9, 1.0),))
    assert what in {each.what for each in differences(STATED, results, CATALOG)}
    found = line_up(STATED, results, CATALOG)
    assert {each.result for each in found.rows} <= {"other set-up", "not measured"}
    assert row(results, "p-eagle over eagle3", 1).measured == pytest.approx(0.9487, abs=1e-4)


@given(
    low=st.floats(0.2, 4),
    width=st.floats(1.001, 3),
    other=st.sampled_from(sorted(OTHERS)),
)
def test_no_figure_differs_unless_the_whole_set_up_is_as_published(
    low: float, width: float, other: str
) -> None:
    results = replace(OTHERS[other][1], comparisons=(compared(low, low * width),))
    assert all(each.result != "differs" for each in line_up(STATED, results, CATALOG).rows)


def test_acceptance_lengths_have_intervals_over_prompts_and_belong_to_their_k() -> None:
    found = row(measured(), "AL p-eagle, K=7", None)
    assert found.measured == pytest.approx(100 / 27)
    assert found.interval is not None
    assert (found.result, found.load) == ("agrees", "c=1")
    assert row(measured(), "AL p-eagle, K=3", None).reason == "p-eagle ran with K=7; add --k p-eagle=3"
    assert row(measured(), "AL eagle3, K=3", None).reason == "the answers do not report drafts"


def test_a_ratio_with_another_k_is_of_another_set_up() -> None:
    found = row(measured(compared(1.5, 1.6), arms_=arms(p_eagle=5)), "p-eagle over eagle3", 1)
    assert (found.result, found.reason) == ("other set-up", "p-eagle ran with K=5, not 7")


def test_tokens_per_second_of_one_request_at_a_time_have_an_interval() -> None:
    table = load_published().table("gpt-oss-20b-speed-bench")
    found = row(measured(), "tokens/s p-eagle", 1, table)
    assert found.interval is not None
    assert found.interval.value == found.measured == pytest.approx(20 * 100 / (20 * 0.1 + 0.19))
    assert found.interval.low < found.interval.value < found.interval.high
    assert row(measured(), "tokens/s none", 1, table).interval is None  # no requests of this arm


def test_what_was_not_measured_says_why() -> None:
    assert row(measured(), "p-eagle over eagle3", 8).reason == "c=8 was not measured"
    assert row(measured(), "p-eagle over eagle3", 1).reason == "too little data for a ratio"
    slow = replace(measured(compared(1.5, 1.6)), points=points(client=SLOW))
    assert row(slow, "p-eagle over eagle3", 1).reason == "withheld: the client did not keep up"
    assert row(slow, "AL p-eagle, K=7", None).result == "agrees"
    two = replace(measured(), arms=arms()[::2])
    assert row(two, "p-eagle over eagle3", 1).reason == "mode eagle3 was not measured"


def test_the_scale_is_the_tables_or_a_small_one_for_the_stand_ins() -> None:
    table = load_published().table("gpt-oss-20b-mt-bench")
    whole = scale_of(table, local=False)
    assert (whole.prompts, whole.max_tokens, whole.concurrency) == (80, 2048, (1, 2, 4, 8, 16, 32, 64))
    small = scale_of(table, local=True)
    assert (small.prompts, small.max_tokens, small.concurrency) == (8, 64, (1, 2))
    given_ = scale_of(table, local=True, prompts=3, max_tokens=9, concurrency=(4,))
    assert (given_.prompts, given_.max_tokens, given_.concurrency) == (3, 9, (4,))
    assert scale_of(load_published().table("gpt-oss-120b-mt-bench-c8"), local=True).concurrency == (8,)


def test_k_on_the_stand_ins_is_at_most_the_trained_depth() -> None:
    (made,) = stand_in_specs("demo", MODES, {"eagle3": 11, "p-eagle": 18}, CATALOG, deployments=1)
    assert {mode: spec.speculation.num_speculative_tokens for mode, spec in made.items()} == {
        "none": None,
        "eagle3": 7,
        "p-eagle": 12,
    }
    assert {spec.name for spec in made.values()} == {"cmp-demo-none", "cmp-demo-eagle3", "cmp-demo-p-eagle"}


def test_each_prefix_has_the_command_that_fills_it() -> None:
    table = load_published().table("gpt-oss-20b-mt-bench")
    whole = "peagle-sm heads stage gpt-oss-20b --head gpt-oss-20b-p-eagle --to s3://b/p/gpt-oss-20b/"
    assert staging(table, MODES, "s3://b/p/", CATALOG) == {
        "s3://b/p/gpt-oss-20b/": whole,
        "s3://b/p/gpt-oss-20b/p-eagle/": whole,
        "s3://b/p/gpt-oss-20b-eagle3/": "peagle-sm heads stage gpt-oss-20b-eagle3 --to s3://b/p/gpt-oss-20b-eagle3/",
    }
    assert list(staging(table, ("none", "p-eagle"), "s3://b/p/", CATALOG)) == [
        "s3://b/p/gpt-oss-20b/",
        "s3://b/p/gpt-oss-20b/p-eagle/",
    ]


@given(st.floats(0, 1e5))
def test_the_lifetime_is_longer_than_the_estimate_and_has_an_end(minutes: float) -> None:
    hours = lifetime_hours(minutes)
    assert 2 <= hours <= 168
    assert hours > minutes / 60 or hours == 168
