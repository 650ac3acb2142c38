"""The sweep over num_speculative_tokens (K), and the final between each mode's own best K."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.arms import arm_of, spec_of
from scripts.bench.comparison.run import Run
from scripts.bench.comparison.summary import Arm
from scripts.bench.progress import Reporter

Engine = Literal["eager", "compiled"]
Measure = Callable[[str, Sequence[Arm], Mapping[str, Any], Sequence[Prompt]], Run]
SPECULATIVE: tuple[Mode, ...] = ("eagle3", "p-eagle")


class Stack(Protocol):
    """The part of :class:`scripts.bench.local_stack.LocalStack` that a sweep needs."""

    def deploy(self, specs: Mapping[str, EndpointSpec]) -> dict[str, Any]: ...  # noqa: D102
    def delete(self, names: Sequence[str]) -> None: ...  # noqa: D102
    def engines(self) -> list[dict[str, Any]]: ...  # noqa: D102


@dataclass(frozen=True)
class EngineResult:
    """One engine setting: a run per K, the best K of each mode, and the final runs by prompt set."""

    engine: Engine
    blocks: Mapping[int, Run]
    best: Mapping[Mode, int]
    finals: Mapping[str, Run]
    engines: Sequence[Mapping[str, Any]] = field(default_factory=list)
    spec_hashes: Mapping[str, str | None] = field(default_factory=dict)


def best_k(blocks: Mapping[int, Run], mode: Mode) -> int:
    """The K at which ``mode`` gains most over plain decoding measured in the same block.

    Ratios are compared, not rates: blocks lie minutes apart, and the machine changes meanwhile.
    """

    def gain(k: int) -> float:
        report = blocks[k].report()
        arm = next(arm.arm for arm in report.arms if arm.mode == mode)
        plain = next(base.arm for base in report.arms if base.mode == "none")
        return report.speed_ups[arm][plain].value

    return max(sorted(blocks), key=gain)


def sweep(
    stack: Stack,
    engine: Engine,
    ks: Sequence[int],
    prompts: Sequence[Prompt],
    finals: Mapping[str, Sequence[Prompt]],
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
    blocks: dict[int, Run] = {}
    for k in ks:
        same_k = dict.fromkeys(SPECULATIVE, k)
        with (
            _Speculative(stack, plain, same_k, compiled, reporter) as group,
            reporter.phase(f"{engine}: K={k} turns"),
        ):
            blocks[k] = measure(f"{engine}, K={k}", group.arms, group.endpoints, prompts)
    best = {mode: best_k(blocks, mode) for mode in SPECULATIVE}
    reporter.say(f"   {engine}: best K " + ", ".join(f"{mode} {k}" for mode, k in best.items()))
    runs: dict[str, Run] = {}
    with _Speculative(stack, plain, best, compiled, reporter) as group:
        for name, chosen in finals.items():
            with reporter.phase(f"{engine}: final turns, {name}"):
                title = f"{name}, {engine}, each mode at its own best K"
                runs[name] = measure(title, group.arms, group.endpoints, chosen)
        engines = stack.engines()
        hashes = {name: endpoint.status().summary.spec_hash for name, endpoint in group.endpoints.items()}
    stack.delete([plain.name])
    return EngineResult(engine, blocks, best, runs, engines, hashes)


class _Speculative:
    """The two speculative endpoints of one block, up beside the plain one and deleted at its end."""

    def __init__(
        self, stack: Stack, plain: Any, ks: Mapping[Mode, int], compiled: bool, reporter: Reporter
    ) -> None:
        self._stack, self._plain, self._reporter = stack, plain, reporter
        self._specs: dict[str, EndpointSpec] = {
            mode: spec_of(mode, k, compiled=compiled) for mode, k in ks.items()
        }
        self.arms: list[Arm] = []
        self.endpoints: dict[str, Any] = {}

    def __enter__(self) -> Self:
        names = " and ".join(spec.name for spec in self._specs.values())
        with self._reporter.phase(f"deploy {names}"):
            made = self._stack.deploy(self._specs)
        self.arms = [arm_of(self._plain, "none"), *(arm_of(made[mode], mode) for mode in SPECULATIVE)]
        self.endpoints = {endpoint.name: endpoint for endpoint in (self._plain, *made.values())}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # otherwise the whole stack is about to end, and deleting would only take time
            self._stack.delete([spec.name for spec in self._specs.values()])
