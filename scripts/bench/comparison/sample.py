"""One request as it was measured, and how a completion's JSON becomes one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Output:
    """What the engine answered to one prompt.

    ``token_ids`` is None where the engine does not report them; ``histogram[j]`` counts the
    verification steps that accepted exactly ``j`` draft tokens, and is empty without speculation.
    ``drafts`` are those steps; ``accepted`` are draft tokens, the free extra token not included.
    """

    text: str
    token_ids: tuple[int, ...] | None
    output_tokens: int
    finish_reason: str | None
    drafts: int | None = None
    accepted: int | None = None
    histogram: tuple[int, ...] = ()

    @property
    def identity(self) -> tuple[int, ...] | str:
        """What two outputs are compared by: token ids where there are any, else the exact text."""
        return self.token_ids if self.token_ids is not None else self.text

    @property
    def identity_sha256(self) -> str:
        """The same as a digest."""
        return hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()


@dataclass(frozen=True)
class Sample:
    """One request: which arm answered which prompt, and how long the caller waited.

    ``seconds`` is wall time from sending the request to the last byte; ``ttft_ms`` is None unless
    the answer was streamed; ``started_at`` is seconds since the run began.
    """

    arm: str
    prompt_id: str
    seconds: float
    output: Output
    ttft_ms: float | None = None
    started_at: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON: token ids become their SHA-256, the text is kept."""
        output = asdict(self.output)
        output.pop("token_ids")
        output["identity_sha256"] = self.output.identity_sha256
        return {**asdict(self), "output": output}


def parse_completion(body: Mapping[str, Any]) -> Output:
    """Read vLLM's answer to a completion request that was not streamed.

    Raises:
        ValueError: the body holds no choice, or no count of tokens.
    """
    choices = body.get("choices") or []
    if not choices:
        raise ValueError(f"the answer holds no choice, only the fields {sorted(body)}")
    choice = choices[0]
    return build_output(
        text=choice.get("text") or "",
        token_ids=choice.get("token_ids"),
        finish_reason=choice.get("finish_reason"),
        usage=body.get("usage"),
        metrics=body.get("metrics"),
    )


def build_output(
    *,
    text: str,
    token_ids: list[int] | None,
    finish_reason: str | None,
    usage: Mapping[str, Any] | None,
    metrics: Mapping[str, Any] | None,
) -> Output:
    """Put together what a whole answer, or the parts of a streamed one, say.

    ``metrics`` is vLLM's ``metrics`` object (``--per-request-spec-decode-metrics``, 0.32 and later).

    Raises:
        ValueError: nothing says how many tokens were written.
    """
    if usage and usage.get("completion_tokens") is not None:
        output_tokens = int(usage["completion_tokens"])
    elif token_ids is not None:
        output_tokens = len(token_ids)
    else:
        raise ValueError("the answer holds neither usage.completion_tokens nor token_ids")
    speculation = (metrics or {}).get("speculative_decoding") or {}
    return Output(
        text=text,
        token_ids=None if token_ids is None else tuple(token_ids),
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        drafts=speculation.get("num_spec_steps"),
        accepted=speculation.get("num_accepted_draft_tokens"),
        histogram=tuple(speculation.get("acceptance_histogram") or ()),
    )
