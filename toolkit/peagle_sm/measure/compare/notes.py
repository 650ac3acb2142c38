"""What a reader of a comparison must know beside its ratios. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peagle_sm.measure.compare.sides import CONTROL
from peagle_sm.measure.records import ArmRecord, ComparisonRecord, PointRecord, RequestRecord
from peagle_sm.measure.withholding import doubt_lines, sort, withheld_lines


def notes_of(
    arms: Sequence[ArmRecord],
    requests: Sequence[RequestRecord],
    points: Sequence[PointRecord],
    comparisons: Sequence[ComparisonRecord],
) -> list[str]:
    """Each said once; the gravest first. Of a comparison that is withheld nothing is told."""
    comparisons = sort(points, comparisons).comparisons
    said = [
        *_failed_controls(comparisons),
        *withheld_lines(points),
        *doubt_lines(points),
        *_failed_requests(requests),
        *_silent_drafts(arms, points),
        *_different_answers(comparisons),
        *_one_deployment(comparisons),
    ]
    return list(dict.fromkeys(said))


def _failed_controls(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for one in comparisons:
        if one.control and one.ratio.shown:
            yield (
                f"{one.load.label}: {one.slower} beside itself came out as {one.ratio.value:.3f} "
                f"[{one.ratio.low:.3f}, {one.ratio.high:.3f}], which excludes 1: something else than the "
                "arms made a difference (by chance this happens in 1 of 20 runs); measure again before you "
                "believe the other ratios"
            )


def _failed_requests(requests: Sequence[RequestRecord]) -> Iterator[str]:
    by_arm: dict[str, list[RequestRecord]] = {}
    for record in requests:
        if record.phase == "measured" and record.error is not None:
            by_arm.setdefault(record.arm, []).append(record)
    for arm, failed in by_arm.items():
        prompts = len({record.prompt_id for record in failed})
        yield (
            f"{arm}: {len(failed)} requests failed, and their {prompts} prompts count for no arm; the first: "
            f"{failed[0].error}: {failed[0].error_message}"
        )


def _silent_drafts(arms: Sequence[ArmRecord], points: Sequence[PointRecord]) -> Iterator[str]:
    for arm in arms:
        own = [point for point in points if point.arm == arm.name]
        if arm.mode in ("eagle3", "p-eagle") and own and not any(point.acceptance for point in own):
            yield (
                f"{arm.name}: no answer tells of its drafts, so its ratio is not split; per-request "
                "acceptance needs vLLM 0.32 or later and SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS=summary"
            )


def _different_answers(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    for one in comparisons:
        same, both = one.identical_outputs, one.compared_outputs
        if same is not None and both is not None and same < both:
            yield (
                f"{one.load.label}: {one.faster} and {one.slower} answered {both - same} of {both} prompts "
                + (
                    "differently although they are the same endpoint: rounding depends on what else is in "
                    "the batch"
                    if one.faster.endswith(CONTROL)
                    else "differently; `peagle-sm verify` tells ties of rounding from faults"
                )
            )


def _one_deployment(comparisons: Sequence[ComparisonRecord]) -> Iterator[str]:
    if any(one.deployments == 1 and not one.control for one in comparisons):
        yield (
            "this deployment only: the intervals say nothing of the next one, which may lie some percent "
            "off; several deployments of each arm do (--deployments with --modes, or ARM,ARM)"
        )
