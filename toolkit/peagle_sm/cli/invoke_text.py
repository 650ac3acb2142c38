"""The figures of one request, in one or two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.plan_text import STAND_IN

if TYPE_CHECKING:
    from peagle_sm.aws.runtime import StreamSummary


def render_summary(summary: StreamSummary, *, stand_in: bool) -> str:
    """TTFT, tokens, rate, acceptance and why it ended; what is not known is left out."""
    parts = []
    if summary.ttft_ms is not None:
        parts.append(f"TTFT {summary.ttft_ms:.0f} ms")
    if summary.output_tokens is not None:
        parts.append(f"{summary.output_tokens} tokens in {summary.total_ms / 1000:.2f} s")
    if summary.otps is not None:
        parts.append(f"{summary.otps:.1f} tokens/s")
    if summary.acceptance is not None:
        parts.append(
            f"acceptance length {summary.acceptance.acceptance_length:.2f} "
            f"of at most {summary.acceptance.num_speculative_tokens + 1}"
        )
    if summary.finish_reason is not None:
        parts.append(f"ended: {summary.finish_reason}")
    line = " · ".join(parts)
    return f"{line}\n({STAND_IN})" if stand_in else line
