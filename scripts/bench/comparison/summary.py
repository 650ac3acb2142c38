"""From samples to what a report says of each arm and of each pair; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from peagle_sm.core.spec.endpoint_spec import Mode
from scripts.bench.comparison import stats
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.stats import Ratio


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an endpoint with its mode and its num_speculative_tokens."""

    name: str
    mode: Mode
    num_speculative_tokens: int | None = None

    @property
    def passes_per_draft(self) -> int:
        """Forward passes of the head to propose one draft: 1 for P-EAGLE, K for EAGLE-3."""
        if self.mode == "none":
            return 0
        return 1 if self.mode == "p-eagle" else (self.num_speculative_tokens or 0)


@dataclass(frozen=True)
class ArmSummary:
    """The figures of one arm.

    ``otps`` is output tokens per second of wall time; ``acceptance_length`` is weighted by
    verification step (1.0 without speculation, None when the engine does not tell);
    ``ttft_ms`` is the median, None unless answers were streamed; ``distinct_4_grams`` is the mean
    share of each output's 4-grams that are distinct.
    """

    arm: str
    mode: Mode
    num_speculative_tokens: int | None
    requests: int
    output_tokens: int
    seconds: float
    otps: float
    acceptance_length: float | None
    acceptance_length_per_request: float | None
    survival_rates: tuple[float, ...]
    target_steps_per_1000_tokens: float
    draft_passes_per_1000_tokens: float
    distinct_4_grams: float
    natural_stops: int
    ttft_ms: float | None


@dataclass(frozen=True)
class Report:
    """One table: its arms, how each compares with each baseline, and whether answers are the same.

    ``speed_ups[arm][baseline]`` is the paired ratio of output tokens per second;
    ``differing`` are ids of prompts with more than one output; ``identity_by`` says what was compared.
    """

    title: str
    prompts: int
    arms: tuple[ArmSummary, ...]
    speed_ups: Mapping[str, Mapping[str, Ratio]]
    differing: tuple[str, ...]
    identity_by: Literal["token ids", "text"]

    @property
    def identical_outputs(self) -> bool:
        """Whether every arm gave the very same output on every prompt."""
        return not self.differing

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        speed_ups = {
            arm: {base: {**asdict(ratio), "shown": ratio.shown} for base, ratio in row.items()}
            for arm, row in self.speed_ups.items()
        }
        return {**asdict(self), "speed_ups": speed_ups, "identical_outputs": self.identical_outputs}


def summarize(arm: Arm, samples: Sequence[Sample]) -> ArmSummary:
    """The figures of ``arm`` over ``samples``, which must all be its own."""
    lengths = stats.acceptance_length(samples), stats.acceptance_length_per_request(samples)
    if arm.mode == "none":
        lengths = 1.0, 1.0
    first_tokens = [sample.ttft_ms for sample in samples if sample.ttft_ms is not None]
    return ArmSummary(
        arm=arm.name,
        mode=arm.mode,
        num_speculative_tokens=arm.num_speculative_tokens,
        requests=len(samples),
        output_tokens=sum(sample.output.output_tokens for sample in samples),
        seconds=sum(sample.seconds for sample in samples),
        otps=stats.otps(samples),
        acceptance_length=lengths[0],
        acceptance_length_per_request=lengths[1],
        survival_rates=stats.survival_rates(samples),
        target_steps_per_1000_tokens=stats.steps_per_1000_tokens(samples),
        draft_passes_per_1000_tokens=stats.draft_passes_per_1000_tokens(samples, arm.passes_per_draft),
        distinct_4_grams=stats.mean_distinct_share(samples),
        natural_stops=sum(sample.output.finish_reason == "stop" for sample in samples),
        ttft_ms=median(first_tokens) if first_tokens else None,
    )


def make_report(
    title: str,
    arms: Sequence[Arm],
    samples: Sequence[Sample],
    *,
    only: Collection[str] | None = None,
) -> Report:
    """Summarise ``samples``; every arm is compared with every arm of a slower mode before it.

    ``only`` keeps the prompts with these ids (the least repetitive third, say).

    Raises:
        ValueError: an arm has no samples, or arms do not share their prompts.
    """
    by_arm: dict[str, list[Sample]] = {arm.name: [] for arm in arms}
    for sample in samples:
        if sample.arm in by_arm and (only is None or sample.prompt_id in only):
            by_arm[sample.arm].append(sample)
    speed_ups: dict[str, dict[str, Ratio]] = {}
    for arm in arms:
        speed_ups[arm.name] = {
            base.name: stats.paired_ratio(by_arm[arm.name], by_arm[base.name])
            for base in baselines(arm, arms)
        }
    kept = [sample for group in by_arm.values() for sample in group]
    with_ids = all(sample.output.token_ids is not None for sample in kept)
    return Report(
        title=title,
        prompts=len({sample.prompt_id for sample in kept}),
        arms=tuple(summarize(arm, by_arm[arm.name]) for arm in arms),
        speed_ups=speed_ups,
        differing=tuple(stats.differing_prompts(by_arm)),
        identity_by="token ids" if with_ids else "text",
    )


def baselines(arm: Arm, arms: Sequence[Arm]) -> list[Arm]:
    """What ``arm`` is compared with: plain decoding, and for P-EAGLE also EAGLE-3."""
    against: dict[Mode, tuple[Mode, ...]] = {"none": (), "eagle3": ("none",), "p-eagle": ("none", "eagle3")}
    return [base for base in arms if base.mode in against[arm.mode]]
