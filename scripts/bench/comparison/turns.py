"""Turn by turn: every arm answers every prompt, one request at a time, in an order that rotates.

The same step took 3.5 and 4.7 ms 25 minutes apart on one machine, so arms measured one after the
other say little. Here the engines stay up, each prompt goes to every arm within a second or so,
and who goes first rotates, so that whatever the machine does befalls all arms alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from peagle_sm.measure.compare.alternating import turn_order
from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.sample import Output, Sample


@dataclass(frozen=True)
class Answer:
    """An answer and how long it took: wall seconds, and milliseconds to the first token if streamed."""

    output: Output
    seconds: float
    ttft_ms: float | None = None


Ask = Callable[[Prompt], Answer]


def run_turns(
    prompts: Sequence[Prompt],
    arms: Mapping[str, Ask],
    *,
    warm_up: Iterable[Prompt] = (),
    on_sample: Callable[[Sample], None] | None = None,
    monotonic: Callable[[], float] = time.perf_counter,
) -> list[Sample]:
    """Ask every arm every prompt, never two at once; warm-up prompts are asked but not recorded.

    An exception of an arm passes through: a comparison with holes in it is no comparison.
    """
    for prompt in warm_up:
        for ask in arms.values():
            ask(prompt)
    began = monotonic()
    samples: list[Sample] = []
    for turn, prompt in enumerate(prompts):
        for name in turn_order(list(arms), turn):
            started_at = monotonic() - began
            answer = arms[name](prompt)
            sample = Sample(name, prompt.id, answer.seconds, answer.output, answer.ttft_ms, started_at)
            samples.append(sample)
            if on_sample is not None:
                on_sample(sample)
    return samples
