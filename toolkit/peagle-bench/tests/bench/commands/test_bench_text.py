from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from peagle_bench.benchmark.run import notes_of
from peagle_bench.commands.bench import outcome_data, render_outcome
from peagle_bench.results.records import ClientHealth, Header
from peagle_bench.results.result_file import Outcome, Results
from tests.bench.report.making import arm, closed, point


def test_a_token_of_a_component_costs_its_share_of_the_instance() -> None:
    whole = replace(arm("p-eagle"), instance_type="ml.p6-b200.48xlarge", usd_per_hour=72.0)
    part = replace(whole, component="p", gpus=1, copies=1)
    measured = replace(point(whole, closed(1), random.Random(3)), otps=100.0)
    header = Header("r", "bench", {}, {}, stand_in_weights=False)
    for described, usd in ((whole, "200.00"), (part, "25.00"), (replace(part, gpus=None), None)):
        results = Results(header, (described,), points=(measured,))
        heads, row, *_ = render_outcome(Outcome(Path("r.jsonl"), results, ())).splitlines()
        assert ("USD/1M TOKENS" in heads) == (usd is not None)
        assert usd is None or row.split()[-1] == usd


def test_doubtful_figures_have_a_note() -> None:
    measured = arm("p-eagle")
    late = ClientHealth(False, "the client was 9 ms late", 9.0, 0.1, 10, bottleneck=False)
    plain = replace(point(measured, closed(1), random.Random(3)), requests=8, seconds=9.0)
    cases = (
        (plain, None),
        (replace(plain, requests=4), "window"),
        (replace(plain, client=late), "9 ms late"),
    )
    for each, note in cases:
        header = Header("r", "bench", {}, {}, stand_in_weights=False)
        notes = tuple(notes_of([each], [], measured))
        outcome = Outcome(Path("r.jsonl"), Results(header, (measured,), points=(each,)), notes)
        shown = render_outcome(outcome)
        assert shown.count("note: ") == (note is not None)
        assert note is None or note in shown
        (data,) = outcome_data(outcome)["points"]
        assert data["window_too_short"] == (each.requests == 4)
