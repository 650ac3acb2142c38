"""Results of the three modes made up for the tests: any prompt, any speed."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_bench.compare.analysis import ArmDeployments, Measured, compare, in_order, pairs_of
from peagle_bench.compare.measurement import point_of
from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.load import ClientUsage, LoadRun, Window
from peagle_bench.results.records import ArmRecord, Header, RequestRecord
from peagle_bench.results.result_file import Results
from scripts.bench.comparison import ALONE, KINDS

ARMS = (
    ArmRecord("smollm2-none", "none", None, "smollm2-none", usd_per_hour=0.0),
    ArmRecord("smollm2-eagle3", "eagle3", 5, "smollm2-eagle3", usd_per_hour=0.0),
    ArmRecord("smollm2-p-eagle", "p-eagle", 7, "smollm2-p-eagle", usd_per_hour=0.0),
)
HEADER = Header(
    run_id="compare-1",
    command="compare",
    config={"workload": {"name": "chat, code and JSON", "prompts": 6}, "max_tokens": 48, "seed": 3},
    provenance={"date": "2026-11-20T12:00:00+00:00", "seed": 0},
    stand_in_weights=True,
)


def request(
    arm: str,
    prompt: str,
    seconds: float,
    *,
    tokens: int = 16,
    histogram: tuple[int, ...] = (),
    output: str = "the answer",
    error: str | None = None,
) -> RequestRecord:
    return RequestRecord(
        arm=arm,
        load=ALONE,
        prompt_id=prompt,
        phase="measured",
        due_s=0.0,
        sent_s=0.0,
        first_s=seconds / 2,
        last_s=seconds,
        done_s=seconds,
        input_tokens=5,
        output_tokens=tokens,
        chunks=2,
        gaps_ms=(seconds * 500,),
        drafts=sum(histogram) if histogram else None,
        accepted=sum(j * count for j, count in enumerate(histogram)) if histogram else None,
        histogram=histogram,
        error=error,
        output_sha256=None if error else output,
        category=KINDS[int(prompt[1:]) % 3] if prompt[1:].isdigit() else None,
    )


def results(requests: Sequence[RequestRecord], arms: Sequence[ArmRecord] = ARMS) -> Results:
    """What the product's `compare` makes of the requests; prompts p0, p1 and p2 are of the three kinds."""
    turns = Measured(ALONE)
    for row in requests:
        window = Window(row.sent_s, row.done_s, row.done_s)
        turns.take(LoadRun(row.arm, ALONE, 0, (row,), window, ClientUsage((), 0.0)))
    points = [point_of(arm, turns, temperature=0.0, machine_load=0.75) for arm in arms]
    pairs = pairs_of(in_order([ArmDeployments((arm,)) for arm in arms]))
    return Results(
        header=HEADER,
        arms=tuple(arms),
        requests=tuple(requests),
        points=tuple(point for point in points if point is not None),
        comparisons=tuple(compare(pair, [turns], temperature=0.0) for pair in pairs),
        slices=tuple(slices_of_pairs([(pair, [turns]) for pair in pairs], temperature=0.0)),
    )


def made(*, prompts: int = 6) -> Results:
    """P-EAGLE is twice as fast as none, and about as fast as EAGLE-3."""
    requests = []
    for number in range(prompts):
        prompt, slower = f"p{number}", 0.01 * (number % 2)
        requests += [
            request("smollm2-none", prompt, 0.08),
            request("smollm2-eagle3", prompt, 0.035 + slower, histogram=(1, 0, 1, 1, 0, 1)),
            request("smollm2-p-eagle", prompt, 0.04, histogram=(1, 1, 1, 0, 1, 0, 0, 0)),
        ]
    return results(requests)
