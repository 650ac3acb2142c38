from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from peagle_bench.commands.bench import outcome_data, render_outcome
from peagle_bench.results.records import ClientHealth, Header
from peagle_bench.results.result_file import Outcome, Results
from tests.bench.report.making import arm, closed, point


def test_a_token_of_a_component_costs_its_share_of_the_instance() -> None:
    whole = replace(arm("p-eagle"), instance_type="ml.p6-b200.48xlarge", usd_per_hour=72.0)
    part = replace(whole, component="p", gpus=1)
    measured = replace(point(whole, closed(1), random.Random(3)), otps=100.0)
    header = Header("r", "bench", {}, {}, stand_in_weights=False)
    for one, usd in ((whole, "200.00"), (part, "25.00"), (replace(part, gpus=None), "-")):
        results = Results(header, (one,), points=(measured,))
        table = render_outcome(Outcome(Path("r.jsonl"), results, ()), stand_in=False)
        assert table.splitlines()[1].split()[-1] == usd


def test_a_star_has_its_footnote_below_the_same_table() -> None:
    one = arm("p-eagle")
    header = Header("r", "bench", {}, {}, stand_in_weights=False)
    late = ClientHealth(False, "the client was 9 ms late", 9.0, 0.1, 10, bottleneck=False)
    plain = replace(point(one, closed(1), random.Random(3)), requests=8, seconds=9.0)
    rates = "(* these tokens/s and requests/s are uncertain: see the note)"
    times = "(* these latencies are uncertain: see the note)"
    cases = [(plain, ()), (replace(plain, requests=4), (rates,)), (replace(plain, client=late), (times,))]
    for measured, footnotes in cases:
        outcome = Outcome(Path("r.jsonl"), Results(header, (one,), points=(measured,)), ())
        shown = render_outcome(outcome, stand_in=False)
        assert shown.count("c=1 *") == len(footnotes)
        assert [line for line in shown.splitlines() if line.startswith("(*")] == list(footnotes)
        (data,) = outcome_data(outcome, stand_in=False)["points"]
        assert data["window_too_short"] == (footnotes == (rates,))
