"""Worlds of which the truth is known: prompts of uneven length, deployments that differ, noisy requests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from peagle_bench.compare.analysis import Cell
from peagle_bench.results.records import Load, Phase, RequestRecord

ALONE = Load("closed", concurrency=1)
EIGHT = Load("closed", concurrency=8)


@dataclass(frozen=True)
class World:
    """Standard deviations are of logarithms; ``gain`` is the true ratio of step times, AL that of drafts.

    The spread of 0.25 over prompts is that measured between heads (0.20 to 0.27); deployments of the same
    kind differ by 1 to 3%, up to 8% in surveys of GPUs.
    """

    prompts: int = 64
    deployments: int = 1
    gain: float = 1.3
    over_prompts: float = 0.25
    over_lengths: float = 0.7
    over_deployments: float = 0.0
    noise: float = 0.05

    @property
    def truth(self) -> float:
        """The ratio of rates of all prompts there could be: weighed by time, so 1 / E[1 / gain]."""
        return self.gain / math.exp(self.over_prompts**2 / 2)

    def draw(self, draws: random.Random) -> tuple[list[dict[int, Cell]], list[dict[int, Cell]]]:
        """Cells of the faster arm and of the slower one, by deployment."""
        lengths = [1 + math.exp(draws.gauss(5, self.over_lengths)) for _ in range(self.prompts)]
        gains = [self.gain * math.exp(draws.gauss(0, self.over_prompts)) for _ in lengths]
        faster: list[dict[int, Cell]] = []
        slower: list[dict[int, Cell]] = []
        for _ in range(self.deployments):
            one, other = (math.exp(draws.gauss(0, self.over_deployments)) for _ in range(2))
            faster.append(
                {
                    prompt: self._cell(tokens, 0.01 * one / gain, draws)
                    for prompt, (tokens, gain) in enumerate(zip(lengths, gains, strict=True))
                }
            )
            slower.append(
                {prompt: self._cell(tokens, 0.01 * other, draws) for prompt, tokens in enumerate(lengths)}
            )
        return faster, slower

    def _cell(self, tokens: float, seconds_each: float, draws: random.Random) -> Cell:
        return Cell(tokens, tokens * seconds_each * math.exp(draws.gauss(0, self.noise)), None, None)


def request(
    arm: str,
    prompt: str,
    *,
    sent: float = 0.0,
    seconds: float = 1.0,
    tokens: int = 100,
    load: Load = ALONE,
    phase: Phase = "measured",
    drafts: int | None = None,
    accepted: int | None = None,
    category: str | None = None,
    error: str | None = None,
    block: int = 0,
    turn: int = 0,
    output: str | None = None,
    chunks: int = 10,
) -> RequestRecord:
    """One request whose chunks come evenly, the first after ``seconds / chunks``."""
    each = seconds / chunks
    return RequestRecord(
        arm=arm,
        load=load,
        prompt_id=prompt,
        phase=phase,
        due_s=sent,
        sent_s=sent,
        first_s=sent + each,
        last_s=sent + seconds,
        done_s=sent + seconds,
        input_tokens=10,
        output_tokens=tokens,
        chunks=chunks,
        gaps_ms=(each * 1000,) * (chunks - 1),
        category=category,
        turn=turn,
        block=block,
        finish_reason="stop",
        error=error,
        drafts=drafts,
        accepted=accepted,
        output_sha256=output,
    )
