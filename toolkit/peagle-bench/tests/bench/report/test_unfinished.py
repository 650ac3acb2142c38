"""Runs that ended early, and several runs side by side: what the report says of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.report import tables
from peagle_bench.report.merging import demand_figures, demand_loads, missing, names_of, view_of
from peagle_bench.report.page import html_page
from peagle_bench.report.trust import trust
from peagle_bench.report.verdict import verdict
from peagle_bench.results.records import KPoint
from peagle_bench.results.result_file import Results
from peagle_sm.core.errors import SpecError
from tests.bench.report import making


def asked(prompts: int, units: int, **config: object) -> Results:
    """A run at c=1 that was asked for ``prompts`` and compares ``units`` of them."""
    created = making.stand_in()
    header = making.header("compare", stand_in=True, workload={"prompts": prompts}, **config)
    comparisons = tuple(replace(row, units=units) for row in created.comparisons)
    return replace(created, header=header, comparisons=comparisons, requests=())


def named(results: Results, source: str) -> Results:
    return replace(results, source=source)


def test_the_headline_says_what_an_interrupted_comparison_lacks() -> None:
    result = verdict(view_of([asked(40, 3)]))
    assert result.headline.endswith("at c=1, in this deployment (interrupted: 3 of 40 prompts)")
    assert "(interrupted" not in verdict(view_of([asked(40, 40)])).headline


def test_a_prompt_that_failed_was_asked_and_is_not_missing() -> None:
    created = making.stand_in()
    count = len({each.prompt_id for each in created.requests})
    assert missing(asked(count, 3)) is not None
    assert missing(replace(asked(count, 3), requests=created.requests)) is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"loads": ["c=1", "c=8"]}, "1 of 2 loads"),
        ({"loads": ["c=1"], "deployments": 3}, "1 of 3 deployments"),
        ({"loads": ["c=1"], "deployments": 1}, None),
    ],
)
def test_loads_and_deployments_that_are_missing(config: dict[str, object], told: str | None) -> None:
    assert missing(asked(3, 3, **config)) == told


def test_blocks_that_are_missing() -> None:
    created = asked(3, 3, blocks=6)
    rows = tuple(replace(row, over="blocks", units=2) for row in created.comparisons)
    assert missing(replace(created, comparisons=rows)) == "2 of 6 blocks"


def test_a_file_without_a_finished_load_is_named_beside_a_whole_one() -> None:
    whole = named(making.stand_in(), "whole.jsonl")
    cut = named(replace(whole, points=(), comparisons=()), "lab/cut.jsonl")
    view = view_of([cut, whole])
    assert view.empty == (
        "cut.jsonl: no finished load, so nothing is shown (192 requests of an interrupted load)",
    )
    assert "cut.jsonl: no finished load" in html_page([cut, whole])
    demand_figures([cut, whole])
    assert [view.label(arm.name) for arm in view.arms] == ["no speculation", "EAGLE-3", "P-EAGLE"]


def test_nothing_finished_at_all_is_refused_with_the_way_on() -> None:
    header = making.header("bench", endpoint="chat")
    with pytest.raises(SpecError) as refused:
        demand_figures([Results(header, source="b.jsonl")])
    assert refused.value.next_step == "run `peagle-sm bench` again"
    with pytest.raises(SpecError) as refused:
        demand_loads([Results(making.header("compare"), source="c.jsonl")])
    assert refused.value.next_step == "run `peagle-sm compare` again"


def test_a_tuning_s_rates_beside_no_speculation() -> None:
    fit = making.fit("p-eagle", 8)
    plain = KPoint(0, 1.0, 6.0, 400.0, True, 390.0, 410.0)
    fit = replace(fit, points=(plain, *fit.points))
    tuned = Results(making.header("tune"), fits=(fit,))
    table = tables.rates(view_of([tuned]))
    assert table is not None
    assert len(table.rows) == 13
    assert table.rows[0][:5] == ("P-EAGLE", "c=8", "0", "400", "[390, 410]")
    assert table.rows[0][-1] == "no speculation"
    (chosen,) = [row for row in table.rows if row[-1] == "chosen"]
    assert chosen[2] == str(fit.best_k)
    second = verdict(view_of([tuned])).second
    assert second.endswith(f"at c=8 with K={fit.best_k}, 400 without speculation.")
    assert "Rate at each K" in html_page([tuned])


def test_checks_of_two_endpoints_are_told_apart() -> None:
    created = making.verified()
    others = tuple(replace(check, arm="other") for check in created.checks)
    view = view_of([created, replace(created, checks=others)])
    table = tables.checks(view)
    assert table is not None
    assert {row[table.heads.index("arm")] for row in table.rows} == {"gpt-oss-20b-p-eagle", "other"}
    assert verdict(view).headline.endswith("(gpt-oss-20b-p-eagle, other)")


def test_each_run_has_its_own_load_average() -> None:
    def busy(load: float, name: str) -> Results:
        created = making.stand_in()
        points = tuple(replace(point, machine_load=load) for point in created.points)
        return named(replace(created, points=points), name)

    assert "load average was 2.50." in trust(view_of([busy(2.5, "a.jsonl")]))
    both = trust(view_of([busy(2.5, "a.jsonl"), busy(7.0, "b.jsonl")]))
    assert "load average was 2.50 in a.jsonl, 7.00 in b.jsonl." in both


def test_files_of_one_name_are_called_by_their_paths() -> None:
    created = making.stand_in()
    names = names_of([named(created, "x/r.jsonl"), named(created, "y/r.jsonl"), named(created, "z.jsonl")])
    assert names == ("x/r.jsonl", "y/r.jsonl", "z.jsonl")
    assert len(set(names_of([created, created]))) == 2


def test_a_verify_that_did_not_finish_does_not_read_as_passed() -> None:
    whole = making.verified()
    requests = [check.name for check in whole.checks]
    header = replace(whole.header, config={**whole.header.config, "checks": requests})
    cut = replace(whole, header=header, checks=whole.checks[:1])
    assert verdict(view_of([cut])).headline == (
        f"The checks did not finish (interrupted: 1 of {len(requests)} checks)"
    )
    assert "did not finish" not in verdict(view_of([replace(whole, header=header)])).headline
