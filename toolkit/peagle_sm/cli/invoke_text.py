"""The figures of one request, in one or two lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.core.words import STAND_IN

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Choice, Completion, StreamSummary
    from peagle_sm.service import EndpointStatus


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


def answer_data(answer: Completion) -> dict[str, Any]:
    """The answer as JSON-able data: the first choice, then `choices` with every one, then the figures."""
    choices = [_choice_data(choice) for choice in answer.choices]
    first = {key: choices[0][key] for key in ("text", "reasoning", "tool_calls", "logprobs")}
    return {**first, "choices": choices, "summary": answer.summary.to_dict()}


def _choice_data(choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "reasoning": choice.reasoning,
        "tool_calls": [asdict(call) for call in choice.tool_calls],
        "logprobs": [
            {
                "token": each.token,
                "logprob": each.logprob,
                "bytes": None if each.data is None else list(each.data),
                "top_logprobs": [{"token": token, "logprob": logprob} for token, logprob in each.top],
            }
            for each in choice.logprobs
        ],
    }


def acceptance_note(summary: StreamSummary, status: EndpointStatus, answers: int = 1) -> str | None:
    """Why a speculating endpoint did not report acceptance; None when it did, or does not speculate."""
    if summary.acceptance is not None or status.speculative_config is None:
        return None
    if answers > 1:
        return f"note: no acceptance: vLLM reports it only for a request of one answer, not of {answers}"
    image = (status.image or "unknown").rpartition("/")[2]
    return (
        "note: acceptance is not reported, though this endpoint speculates: "
        f"that needs vLLM 0.32 or later (image: {image})"
    )
