"""Results made up for the report's tests: shaped like real ones, seeded, and labelled as synthetic.

``python -m tests.bench.report.making FOLDER`` writes them as files, for ``scripts/shots``.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from peagle_bench.results.records import (
    Acceptance,
    ArmRecord,
    CheckRecord,
    ClientHealth,
    ComparisonRecord,
    FitRecord,
    Goodput,
    Header,
    Interval,
    KPoint,
    Load,
    Mode,
    Percentiles,
    PointRecord,
    Reading,
    RequestRecord,
)
from peagle_bench.results.result_file import Results, to_line
from peagle_bench.step_times import COMMAND, REASON

LOADS = (1, 2, 4, 8, 16, 32, 64)
MODES: tuple[Mode, ...] = ("none", "eagle3", "p-eagle")
#: Tokens a second at c=1, the load at which it halves per request, survival per position.
SHAPE: dict[str, tuple[float, float, tuple[float, ...]]] = {
    "none": (186.0, 26.0, ()),
    "eagle3": (402.0, 14.0, (0.71, 0.49, 0.34)),
    "p-eagle": (548.0, 9.5, (0.76, 0.59, 0.46, 0.36, 0.27, 0.21, 0.16)),
}
DEPTH: dict[str, int | None] = {"none": None, "eagle3": 3, "p-eagle": 7}
SYNTHETIC = "made up by tests/bench/report/making.py, seed 0; nothing was measured"


def closed(concurrency: int) -> Load:
    return Load("closed", concurrency)


def header(command: str = "compare", stand_in: bool = False, **config: Any) -> Header:
    return Header(
        run_id="20261120T135200Z-5f0c",
        command=command,
        config={"workload": {"name": "HumanEval", "license": "MIT"}, "seed": 0, "max_tokens": 256, **config},
        provenance={
            "synthetic": SYNTHETIC,
            "date": "2026-11-20T13:52:00+00:00",
            "versions": {"peagle-sm": "0.1.0", "boto3": "1.44.5", "aiohttp": "3.14.5", "python": "3.11.7"},
            "machine": {"system": "Linux", "processor": "AMD EPYC", "cores": 2, "memory_gb": 25.3},
            "git_revision": "6d0899d17a4d95334ed174a5ea08bef0da694aa5",
            "seed": 0,
            "engine": [{"endpoint": f"gpt-oss-20b-{mode}", "engine_version": "0.32.0"} for mode in MODES],
            "spec_sha256": {mode: f"{n}c1d09e7a4b2" * 5 for n, mode in enumerate(MODES)},
            "region": "us-east-1",
        },
        stand_in_weights=stand_in,
    )


def arm(mode: Mode, *, control: bool = False, usd: float | None = 4.2) -> ArmRecord:
    name = f"gpt-oss-20b-{mode}" + ("-again" if control else "")
    return ArmRecord(
        name=name,
        mode=mode,
        num_speculative_tokens=DEPTH[mode],
        endpoint=name,
        instance_type="ml.g7e.2xlarge",
        usd_per_hour=usd,
        price_source="ml.g7e.2xlarge in us-east-1: SageMaker on demand, AWS Price List API, 2026-11-01",
        deployment="d1",
        control=control,
    )


def percentiles(p50: float, tail: float, count: int) -> Percentiles:
    return Percentiles(p50, p50 * tail, p50 * tail * 1.4, p50 * 1.05, count)


def rate(mode: str, concurrency: int) -> float:
    first, half, _ = SHAPE[mode]
    return first * concurrency / float((1 + (concurrency - 1) / half) ** 0.72)


def point(of: ArmRecord, load: Load, draw: random.Random, otps: float | None = None) -> PointRecord:
    c = load.concurrency or 8
    otps = (otps or rate(of.mode, c)) * draw.gauss(1, 0.01)
    survival = SHAPE[of.mode][2]
    tokens, seconds = int(otps * 120), 120.0
    tpot = 1000 * c / otps
    length = 1 + sum(survival)
    return PointRecord(
        arm=of.name,
        load=load,
        seconds=seconds,
        requests=tokens // 180,
        errors={"ThrottlingException": 2} if c >= 64 and of.mode == "none" else {},
        input_tokens=tokens,
        output_tokens=tokens,
        otps=otps,
        otps_per_request=otps / c,
        requests_per_s=otps / 180,
        ttft_ms=percentiles(38 + (3.1 + 0.4 * MODES.index(of.mode)) * c, 1.5 + 0.01 * c, 96),
        tpot_ms=percentiles(tpot, 1.25, 96),
        itl_ms=percentiles(tpot * length, 1.3, 9600),
        e2e_ms=percentiles(38 + tpot * 180, 1.35, 96),
        acceptance=Acceptance(
            "per-request", length * 0.99, length, survival, tokens // 3, int(tokens * (1 - 1 / length))
        )
        if survival
        else None,
        client=ClientHealth(True, None, 0.6 + 0.03 * c, 0.04 + 0.008 * c, 17.2),
        temperature=0.0,
        goodput=Goodput(200, 12, None, otps / 180 * 0.9, 0.9 if c < 32 else 0.41),
        usd=4.2 / 3600 * seconds,
    )


def ratio_at(fast: str, slow: str, concurrency: int, wide: float) -> Interval:
    value = rate(fast, concurrency) / rate(slow, concurrency)
    return Interval(value, value / wide, value * wide)


def comparison(
    fast: ArmRecord, slow: ArmRecord, load: Load, *, deployments: int = 1, wide: float = 1.055
) -> ComparisonRecord:
    c = load.concurrency or 1
    ratio = Interval(1.003, 0.985, 1.021) if fast.control else ratio_at(fast.mode, slow.mode, c, wide)
    lengths = [1 + sum(SHAPE[each.mode][2]) for each in (fast, slow)]
    length = lengths[0] / lengths[1]
    step = ratio.value / length
    return ComparisonRecord(
        faster=fast.name,
        slower=slow.name,
        load=load,
        ratio=ratio,
        over="prompts" if c == 1 else "blocks",
        units=96 if c == 1 else 24,
        deployments=deployments,
        acceptance_ratio=Interval(length, length * 0.98, length * 1.02),
        step_time_ratio=Interval(step, step * 0.97, step * 1.03),
        control=fast.control,
        identical_outputs=96 if c == 1 else None,
        compared_outputs=96 if c == 1 else None,
    )


def fit(mode: Mode, concurrency: int) -> FitRecord:
    rows = []
    for k in range(1, 13):
        length = 1 + sum(0.78 * 0.79**i for i in range(k)) * (1.0 if mode == "p-eagle" else 0.93)
        draft = 0.9 if mode == "p-eagle" else 0.32 * k
        step = 5.1 + draft + 0.021 * concurrency * (k + 1)
        measured = k in (3, 7, 11)
        otps = 1000 * length / step * concurrency
        low, high = (otps * 0.985, otps * 1.015) if measured else (None, None)
        rows.append(KPoint(k, length, step, otps, measured, low, high))
    best = max(rows, key=lambda row: row.otps).k
    reason = f"K={best} has the highest predicted rate; a smaller K is excluded by its interval"
    return FitRecord(mode, closed(concurrency), tuple(rows), best, reason, 3, 1.26)


CHECKS = (
    ("greedy equality", True, "96 of 96 prompts answered alike", "a token changed in 1 of 12,000 is caught"),
    ("scored under the target", True, "largest gap 0.02 nats, noise floor 0.06", "0.1 nats a token: 99%"),
    ("sampled, one-sample Z", True, "Z = 0.41 over 18,230 tokens", "temperature off by 0.05: 97%"),
    ("tool calls", True, "12 of 12 calls parse and are equal", "any altered call"),
    ("JSON schema", True, "24 of 24 documents are valid", "any invalid document"),
    ("long context", True, "8 prompts of 7,900 tokens answered alike", "one token in 1,024"),
    ("logprobs", True, "largest difference 0.004", "0.05 in one of 40"),
    ("stop strings", True, "0 of 40 leaked", "one in 40"),
    ("parameters", None, "the baseline itself does not apply min_p", "not decided"),
    ("streaming", True, "chunks joined equal the whole answer, 40 of 40", "one lost chunk"),
)


def checks() -> tuple[CheckRecord, ...]:
    return tuple(
        CheckRecord(name, "gpt-oss-20b-p-eagle", "gpt-oss-20b-none", passed, summary, power)
        for name, passed, summary, power in CHECKS
    )


def requests(
    points: tuple[PointRecord, ...], draw: random.Random, each: int = 12
) -> tuple[RequestRecord, ...]:
    rows = []
    for point in points:
        for n in range(each):
            tokens = draw.randint(90, 250)
            start = n * 1.3
            gaps = tuple(round(draw.gauss(14, 1.2), 3) for _ in range(tokens // 3))
            last = start + 0.05 + sum(gaps) / 1000
            rows.append(
                RequestRecord(
                    point.arm,
                    point.load,
                    f"HumanEval/{n}",
                    "measured",
                    start,
                    start + 0.0004,
                    start + 0.05,
                    last,
                    last + 0.001,
                    140,
                    tokens,
                    len(gaps) + 1,
                    gaps,
                    finish_reason="stop",
                )
            )
    return tuple(rows)


def compared(deployments: int = 1, wide: float = 1.055) -> Results:
    """Three modes and an A/A arm at seven concurrencies, as from `compare`."""
    draw = random.Random(0)
    none, eagle3, p_eagle = (arm(mode) for mode in MODES)
    again = arm("p-eagle", control=True)
    arms = (none, eagle3, p_eagle, again)
    points = tuple(point(each, closed(c), draw) for each in arms for c in LOADS if not each.control or c <= 2)
    pairs = [(p_eagle, eagle3), (p_eagle, none), (eagle3, none)]
    rows = [
        comparison(fast, slow, closed(c), deployments=deployments, wide=wide)
        for fast, slow in pairs
        for c in LOADS
    ]
    rows += [comparison(again, p_eagle, closed(c)) for c in (1, 2)]
    return Results(header(), arms, requests(points, draw), points, tuple(rows))


def tuned() -> Results:
    fits = tuple(fit(mode, c) for c in (1, 8, 32) for mode in ("eagle3", "p-eagle"))
    return Results(header("tune"), fits=fits)


def verified() -> Results:
    return Results(header("verify"), checks=checks())


NO_DIFFERENCE = Interval(0.98, 0.94, 1.03)


def stand_in(ratio: Interval = NO_DIFFERENCE) -> Results:
    """What quickstart gives: the tiny family at c=1, and no difference shown."""
    draw = random.Random(1)
    rates = {"none": 161.0, "eagle3": 297.0, "p-eagle": 291.0}
    arms = tuple(
        replace(
            arm(mode, usd=0.0),
            name=f"tiny-{mode}",
            instance_type=None,
            price_source="local: nothing is billed",
        )
        for mode in MODES
    )
    points = tuple(replace(point(each, closed(1), draw, rates[each.mode]), usd=0.0) for each in arms)
    rows = (
        replace(comparison(arms[2], arms[1], closed(1)), ratio=ratio),
        replace(comparison(arms[2], arms[0], closed(1)), ratio=Interval(1.81, 1.7, 1.93)),
        replace(comparison(arms[1], arms[0], closed(1)), ratio=Interval(1.85, 1.76, 1.95)),
    )
    return Results(header("quickstart", stand_in=True), arms, requests(points, draw, 64), points, rows)


def step_times(
    ks: tuple[int, ...] = (3,), target: str = "gpt-oss-20b", noise: float = 0.0, **changed: Any
) -> Results:
    """What `tune --synthetic` gives where a token takes 0.2 + 0.03 c ms and a step 4 + 0.1 K + 0.2 c ms."""
    draw = random.Random(2)
    windows = []
    for c in (1, 8):
        for k, accepted in [(0, 0), *((each, a) for each in ks for a in (0, each))]:
            length = 1.0 + accepted
            for block in (0, 1):
                step_ms = 4 + 0.1 * k + 0.2 * c
                rate = 1000 * c / (0.2 + 0.03 * c + step_ms / length) * (1 + draw.uniform(-noise, noise))
                windows.append(Reading(k, c, length, (), step_ms, rate, 1000, "metrics", block))
    config: dict[str, Any] = {
        "target": target,
        "mode": "p-eagle",
        "ks": list(ks),
        "concurrencies": [1, 8],
        "max_tokens": 128,
    }
    head = header(COMMAND, **config)
    first = replace(arm("none"), name="synthetic K=3 acceptance length 1", mode="unknown", **changed)
    return Results(
        replace(head, provenance={**head.provenance, "synthetic": REASON}), (first,), windows=tuple(windows)
    )


def lines(results: Results) -> list[str]:
    parts = (
        results.arms,
        results.requests,
        results.points,
        results.comparisons,
        results.fits,
        results.checks,
        results.packs,
        results.slices,
        results.windows,
    )
    return [to_line(record) for record in (results.header, *(row for part in parts for row in part))]


def write(results: Results, path: Path) -> Path:
    path.write_text("\n".join(lines(results)) + "\n", encoding="utf-8")
    return path


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, results in {
        "compare": compared(),
        "tune": tuned(),
        "verify": verified(),
        "stand-in": stand_in(),
    }.items():
        print(write(results, folder / f"{name}.jsonl"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
