"""The sweep over num_speculative_tokens (K), and the final between each mode's own best K."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from peagle_sm.measure.results.result_file import Results
from peagle_sm.measure.workloads import Workload
from scripts.bench.comparison import spec_of, speed_up
from scripts.bench.progress import Reporter

Engine = Literal["eager", "compiled"]
Measure = Callable[[Mapping[Mode, str], Workload], Results]
"""Measures the endpoints of these names, by mode."""
SPECULATIVE: tuple[Mode, ...] = ("eagle3", "p-eagle")


class Stack(Protocol):
    """The part of :class:`scripts.bench.local_stack.LocalStack` that a sweep needs."""

    def deploy(self, specs: Mapping[str, EndpointSpec]) -> dict[str, Any]: ...  # noqa: D102
    def delete(self, names: Sequence[str]) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class EngineResult:
    """One engine setting: results per K, the best K of each mode, and the finals by prompt set."""

    engine: Engine
    blocks: Mapping[int, Results]
    best: Mapping[Mode, int]
    finals: Mapping[str, Results]


def best_k(blocks: Mapping[int, Results], mode: Mode) -> int:
    """The K at which ``mode`` gains most over plain decoding measured in the same block.

    Ratios are compared, not rates: blocks are minutes apart, and the machine changes meanwhile.
    """

    def gain(k: int) -> float:
        ratio = speed_up(blocks[k], mode, "none")
        return ratio.value if ratio else 0.0

    return max(sorted(blocks), key=gain)


def sweep(
    stack: Stack,
    engine: Engine,
    ks: Sequence[int],
    prompts: Workload,
    finals: Mapping[str, Workload],
    measure: Measure,
    reporter: Reporter,
) -> EngineResult:
    """Measure every K beside plain decoding, then each mode at its own best K on other prompts.

    The endpoint without speculation stays up throughout; at any time at most three engines run.
    ``finals`` are sets of prompts by name, disjoint from ``prompts``: the choice of K must not be
    judged on the prompts that it was made on.
    """
    compiled = engine == "compiled"
    with reporter.phase(f"{engine}: deploy none"):
        plain = stack.deploy({"none": spec_of("none", compiled=compiled)})["none"]
    blocks: dict[int, Results] = {}
    for k in ks:
        same_k = dict.fromkeys(SPECULATIVE, k)
        with (
            _Speculative(stack, plain, same_k, compiled, reporter) as group,
            reporter.phase(f"{engine}: K={k} turns"),
        ):
            blocks[k] = measure(group.names, prompts)
    best = {mode: best_k(blocks, mode) for mode in SPECULATIVE}
    reporter.say(f"   {engine}: best K " + ", ".join(f"{mode} {k}" for mode, k in best.items()))
    found: dict[str, Results] = {}
    with _Speculative(stack, plain, best, compiled, reporter) as group:
        for name, chosen in finals.items():
            with reporter.phase(f"{engine}: final turns, {name}"):
                found[name] = measure(group.names, chosen)
    stack.delete([plain.name])
    return EngineResult(engine, blocks, best, found)


class _Speculative:
    """The two speculative endpoints of one block, up beside the plain one and deleted at its end."""

    def __init__(
        self, stack: Stack, plain: Any, ks: Mapping[Mode, int], compiled: bool, reporter: Reporter
    ) -> None:
        self._stack, self._reporter = stack, reporter
        self._specs = {mode: spec_of(mode, k, compiled=compiled) for mode, k in ks.items()}
        self.names: dict[Mode, str] = {
            "none": plain.name,
            **{mode: spec.name for mode, spec in self._specs.items()},
        }

    def __enter__(self) -> Self:
        names = " and ".join(spec.name for spec in self._specs.values())
        with self._reporter.phase(f"deploy {names}"):
            self._stack.deploy({str(mode): spec for mode, spec in self._specs.items()})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # otherwise the whole stack is about to end, and deleting would only take time
            self._stack.delete([spec.name for spec in self._specs.values()])
