"""The quickstart's samples as a results file, which `peagle-sm report` reads like any other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peagle_sm.measure.compare.analysis import Measured, Side, compare, in_order, pairs_of
from peagle_sm.measure.compare.measurement import point_of
from peagle_sm.measure.load import ClientUsage, LoadRun, Window
from peagle_sm.measure.results.provenance import engine_in_brief
from peagle_sm.measure.results.records import ArmRecord, Header, Load, RequestRecord
from peagle_sm.measure.results.result_file import Results
from scripts.bench.comparison import stats
from scripts.bench.comparison.client import TEMPERATURE
from scripts.bench.comparison.run import Run
from scripts.bench.comparison.sample import Sample

ALONE = Load("closed", concurrency=1)
THIRD, REST = "least repetitive third", "the other prompts"


def results_of(
    run: Run, arms: Sequence[ArmRecord], *, config: Mapping[str, Any], origin: Mapping[str, Any]
) -> Results:
    """Header, arms, requests, points and comparisons of a run in turns.

    ``arms`` describe the run's own, by name. Prompts are categories by how much the answers to them repeat,
    since a head guesses repetition easily.
    """
    requests = _requests(run)
    measured = Measured(ALONE)
    usage = ClientUsage((), run.client_cpu_s / max(1, len(requests)))
    for record in requests:
        window = Window(record.sent_s, record.done_s, record.done_s - record.sent_s)
        measured.take(LoadRun(record.arm, ALONE, 0, (record,), window, usage))
    points = (point_of(arm, measured, temperature=TEMPERATURE, machine_load=max(run.load)) for arm in arms)
    pairs = pairs_of(in_order([Side((arm,)) for arm in arms]))
    return Results(
        header=Header(
            run_id=f"quickstart-{origin['date']}",
            command="quickstart",
            config=dict(config),
            provenance={**origin, "engine": [engine_in_brief(row) for row in origin.get("engine", ())]},
            stand_in_weights=True,
        ),
        arms=tuple(arms),
        requests=requests,
        points=tuple(point for point in points if point is not None),
        comparisons=tuple(compare(pair, [measured], temperature=TEMPERATURE) for pair in pairs),
    )


def _requests(run: Run) -> tuple[RequestRecord, ...]:
    plain = {arm.name for arm in run.arms if arm.mode == "none"}
    third = stats.least_repetitive(sample for sample in run.samples if sample.arm in plain)
    return tuple(_request(sample, THIRD if sample.prompt_id in third else REST) for sample in run.samples)


def _request(sample: Sample, category: str) -> RequestRecord:
    output, first = sample.output, sample.ttft_ms
    return RequestRecord(
        arm=sample.arm,
        load=ALONE,
        prompt_id=sample.prompt_id,
        phase="measured",
        due_s=sample.started_at,  # a turn is due when it is taken
        sent_s=sample.started_at,
        first_s=None if first is None else sample.started_at + first / 1000,
        last_s=None,
        done_s=sample.started_at + sample.seconds,
        input_tokens=None,
        output_tokens=output.output_tokens,
        chunks=0,  # answered in one piece
        category=category,
        finish_reason=output.finish_reason,
        drafts=output.drafts,
        accepted=output.accepted,
        histogram=output.histogram,
        output_sha256=output.identity_sha256,
    )
