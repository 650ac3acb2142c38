"""One comparison: warm the endpoints up, take turns, and keep the samples, the load and the report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.errors import EngineError, SpecError
from peagle_sm.measure.results.provenance import load_now
from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison import stats
from scripts.bench.comparison.client import Invokable, asker
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.summary import Arm, Report, make_report
from scripts.bench.comparison.turns import run_turns
from scripts.bench.progress import Reporter

WARM_UP = 2  #: prompts that every arm answers before anything counts
_FEWEST = 2  #: an interval over prompts needs as many


@dataclass(frozen=True)
class Run:
    """The samples of one comparison, the load average before and after it, the client's own CPU time."""

    title: str
    arms: tuple[Arm, ...]
    samples: tuple[Sample, ...]
    load: tuple[float, float]
    client_cpu_s: float = 0.0  #: CPU seconds of this process, warm-up included

    def report(self) -> Report:
        """All prompts."""
        return make_report(self.title, self.arms, self.samples)

    def least_repetitive(self) -> Report:
        """The third of the prompts whose outputs, decoded without speculation, repeat least."""
        plain = {arm.name for arm in self.arms if arm.mode == "none"}
        only = stats.least_repetitive(sample for sample in self.samples if sample.arm in plain)
        title = f"{self.title}; least repetitive third of the prompts"
        return make_report(title, self.arms, self.samples, only=only)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: both reports, the load and every sample."""
        return {
            "report": self.report().to_dict(),
            "least_repetitive_third": self.least_repetitive().to_dict(),
            "load": {"before": self.load[0], "after": self.load[1]},
            "samples": [sample.to_dict() for sample in self.samples],
        }


def measure(
    title: str,
    arms: Sequence[Arm],
    endpoints: Mapping[str, Invokable],
    prompts: Sequence[Prompt],
    *,
    warm_up: Sequence[Prompt],
    max_tokens: int,
    reporter: Reporter,
    stream: bool = False,
) -> Run:
    """Let ``arms`` answer ``prompts`` in turns; ``endpoints`` are theirs, by the arm's name.

    Raises:
        SpecError: too few prompts to say anything.
        EngineError: an arm with speculation reported no draft at all, so that its figures would
            describe something else than its mode.
    """
    if len(prompts) < _FEWEST:
        raise SpecError(
            f"{len(prompts)} prompts; a comparison with an interval needs at least {_FEWEST}",
            next_step="ask for more prompts",
        )
    asks = {
        arm.name: asker(endpoints[arm.name], max_tokens=max_tokens, salt=title, stream=stream) for arm in arms
    }
    before, cpu_s = load_now(), time.process_time()
    with reporter.turns("turns", len(prompts) * len(arms)) as tick:
        samples = run_turns(
            prompts,
            asks,
            warm_up=warm_up,
            on_sample=lambda sample: tick(
                f"{sample.arm}: {sample.output.output_tokens / max(sample.seconds, 1e-9):.0f} tokens/s"
            ),
        )
    run = Run(title, tuple(arms), tuple(samples), (before, load_now()), time.process_time() - cpu_s)
    _demand_drafts(run)
    return run


def _demand_drafts(run: Run) -> None:
    for arm in run.arms:
        drafts = sum(sample.output.drafts or 0 for sample in run.samples if sample.arm == arm.name)
        if arm.mode != "none" and not drafts:
            raise EngineError(
                f"{arm.name} (mode {arm.mode}) reported no draft in any answer",
                next_step="per-request acceptance needs vLLM 0.32 or later and"
                " SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS=summary in the endpoint's environment",
            )
