"""The modes of the small model, compared by the product's `compare`: for the quickstart.

A draft head guesses repetition easily. So the answers without speculation divide the prompts into two
categories: the least repetitive third, which gives the honest figures, and the other prompts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from peagle_bench.benchmark.endpoint_arm import Described, demand_mode, describe_endpoint, look_at
from peagle_bench.compare import run
from peagle_bench.compare.analysis import ArmDeployments, Measured, Pair, compare
from peagle_bench.compare.measurement import Setup, point_of
from peagle_bench.compare.run import CompareDependencies
from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.load import ClientUsage, Clock, LoadRun, Target, Timeouts, Window, make_target
from peagle_bench.load.answer import Answer
from peagle_bench.load.http_client import Sender, open_sender
from peagle_bench.load.run import Connect
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Interval, Load, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_bench.tune.windows import with_k
from peagle_bench.workloads import Workload, load_workload
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, LifecycleSpec, ServingSpec, SpeculationSpec
from peagle_sm.core.spec.modes import Mode
from scripts.bench.local_stack import LocalStack, Say

MODEL = "tiny-code"
HEADS: dict[Mode, str | None] = {
    "none": None,
    "eagle3": "tiny-code-eagle3",
    "p-eagle": "tiny-code-p-eagle",
}
#: Asks the local engine to compile its steps; left out, it runs eager.
COMPILED = {"PEAGLE_SM_LOCAL_COMPILE": "1"}
#: vLLM's: outputs are then compared by token id, not by text.
TOKEN_IDS = {"return_token_ids": True}
ALONE = Load("closed", concurrency=1)
_EVERY_S = 5.0  #: between two lines of progress

Category = Literal["least repetitive third", "the other prompts"]
THIRD: Category = "least repetitive third"
REST: Category = "the other prompts"


def spec_of(mode: Mode, k: int | None = None, *, compiled: bool = False) -> EndpointSpec:
    """The spec of the small model in one mode; ``k`` left out takes the catalogue's best K.

    Raises:
        SpecError: ``k`` is not one that the mode can have.
    """
    name = "-".join(["tiny", mode, *([f"k{k}"] if k else []), *(["compiled"] if compiled else [])])
    return EndpointSpec(
        name=name,
        model=MODEL,
        source="container",
        speculation=SpeculationSpec(mode=mode, num_speculative_tokens=k, draft_head=HEADS[mode]),
        serving=ServingSpec(env=dict(COMPILED) if compiled else {}),
        lifecycle=LifecycleSpec(max_lifetime_hours=4),
    )


def human_eval(prompts: int, *, max_tokens: int, seed: int) -> Workload:
    """HumanEval's prompts, greedy.

    Raises:
        NotFound: the package is not installed.
        SpecError: it does not hold as many.
    """
    return load_workload("humaneval", count=prompts, max_tokens=max_tokens, seed=seed, extra=TOKEN_IDS)


def measure(
    stack: LocalStack,
    endpoints: Mapping[Mode, str],
    workload: Workload,
    path: Path,
    *,
    config: Mapping[str, Any],
    say: Say,
    ks: Mapping[Mode, int] | None = None,
) -> Results:
    """Let the endpoints answer every prompt in turns, one request at a time; ``path`` is overwritten.

    Without a control (an arm measured twice), which would take a third more time. ``ks``: the K that the
    requests of a mode name, for engines that take it from them; the others run at their own.

    Raises:
        SpecError: an endpoint runs another mode, or there are fewer than two prompts.
        Interrupted: Ctrl-C.
        ServiceFault: an endpoint stopped answering.
    """
    session = stack.session
    ks = ks or {}
    described = [
        _at(ks.get(mode), demand_mode(describe_endpoint(session, name), mode))
        for mode, name in endpoints.items()
    ]
    connect = connect_with({endpoints[mode]: k for mode, k in ks.items()})
    around = dependencies(stack, described, config["seed"], say, connect)
    return measured(described, workload, path, around, config, say)


def dependencies(
    stack: LocalStack, described: Sequence[Described], seed: int, say: Say, connect: Connect = open_sender
) -> CompareDependencies:
    """What a comparison of endpoints of this local SageMaker needs, with the full provenance."""
    session = stack.session
    return CompareDependencies(
        progress=lambda event: say(f"   {event.message}"),
        target_of=lambda arm: replace(make_target(session, arm), arm=arm.name),
        look=lambda arm: look_at(session, arm),
        provenance=lambda: {
            **origin(seed),
            "engine_versions": sorted({str(row.get("engine_version")) for row in stack.engines()}),
        },
        connect=connect,
        every_s=_EVERY_S,
    )


def _at(k: int | None, described: Described) -> Described:
    """The arm at the K that its requests name; None leaves the engine's own.

    Without addresses and process ids of this machine.
    """
    arm = described.arm if k is None else replace(described.arm, num_speculative_tokens=k)
    return replace(described, arm=arm, origin={**described.origin, "engine": None})


@dataclass(frozen=True)
class SenderWithK:
    """Adds the K of an arm to each of its requests; arms without one are sent as they are."""

    sender: Sender
    ks: Mapping[str, int]

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        """Send the body with the arm's K."""
        return await self.sender.send(target, with_k(body, self.ks.get(target.arm)))


def connect_with(ks: Mapping[str, int]) -> Connect:
    """Like `open_sender`; each arm's requests name its K (``ks`` by the arm's name)."""

    @asynccontextmanager
    async def connect(
        targets: list[Target], timeouts: Timeouts, connections: int, clock: Clock
    ) -> AsyncIterator[Sender]:
        async with open_sender(targets, timeouts, connections, clock) as sender:
            yield SenderWithK(sender, ks)

    return connect


def measured(
    described: Sequence[Described],
    workload: Workload,
    path: Path,
    around: CompareDependencies,
    config: Mapping[str, Any],
    say: Say,
) -> Results:
    """The product's comparison of these arms, with a category for each prompt."""
    setup = Setup(workload.items, (ALONE,), temperature=workload.temperature)
    path.unlink(missing_ok=True)
    outcome = run.compare(
        [nullcontext(described)], setup, workload, path, around, control=False, config=config
    )
    for note in outcome.notes:
        say(f"   note: {note}")
    return by_repetition(outcome.results)


def by_repetition(results: Results) -> Results:
    """The same with a category for each prompt, and the figures by slice with the categories."""
    third = _least_repetitive(results)
    requests = tuple(
        replace(row, category=THIRD if row.prompt_id in third else REST) for row in measured_requests(results)
    )
    turns = _turns(requests)
    parts = [(_pair(results, row), [turns]) for row in results.comparisons]
    slices = slices_of_pairs(parts, temperature=0.0)
    return replace(results, requests=requests, slices=tuple(slices))


def measured_requests(results: Results) -> tuple[RequestRecord, ...]:
    """All but the warm-up."""
    return tuple(row for row in results.requests if row.phase == "measured")


def _least_repetitive(results: Results) -> frozenset[str]:
    """Ids of the third of the prompts (at least two) that are answered with the fewest repeated 4-grams.

    The mode without speculation decides, so that the choice cannot favour a head. Ties go by id.
    """
    plain = arm_of(results, "none").name
    shares = {
        row.prompt_id: row.distinct_4_grams
        for row in measured_requests(results)
        if row.arm == plain and row.distinct_4_grams is not None
    }
    ranked = sorted(shares, key=lambda prompt: (-shares[prompt], prompt))
    return frozenset(ranked[: max(2, round(len(ranked) / 3))])


def within(results: Results, category: Category) -> Results:
    """The results of one category: its requests, and the points and comparisons of these alone."""
    requests = tuple(row for row in results.requests if row.category == category)
    turns, arms = _turns(requests), {arm.name: arm for arm in results.arms}
    points = [
        replace(point, client=whole.client)  # judged over the whole run
        for whole in results.points
        if (
            point := point_of(
                arms[whole.arm], turns, temperature=whole.temperature, machine_load=whole.machine_load
            )
        )
    ]
    comparisons = []
    for row in results.comparisons:
        with suppress(ValueError):  # requests failed, and too few prompts are left for an interval
            comparisons.append(compare(_pair(results, row), [turns], temperature=0.0))
    return replace(results, requests=requests, points=tuple(points), comparisons=tuple(comparisons))


def _turns(requests: Sequence[RequestRecord]) -> Measured:
    measured = Measured(ALONE)
    for row in requests:
        window = Window(row.sent_s, row.done_s, row.done_s - row.sent_s)
        measured.take(LoadRun(row.arm, ALONE, 0, (row,), window, ClientUsage((), 0.0)))
    return measured


def _pair(results: Results, row: ComparisonRecord) -> Pair:
    sides = {arm.name: ArmDeployments((arm,)) for arm in results.arms}
    return Pair(sides[row.faster], sides[row.slower])


def arm_of(results: Results, mode: Mode) -> ArmRecord:
    """The arm that ran in a mode."""
    return next(arm for arm in results.arms if arm.mode == mode)


def speed_up(results: Results, faster: Mode, slower: Mode) -> Interval | None:
    """The ratio of two modes; None where they were not compared."""
    names = arm_of(results, faster).name, arm_of(results, slower).name
    return next((row.ratio for row in results.comparisons if (row.faster, row.slower) == names), None)


def figures(results: Results) -> dict[Mode, dict[str, Any]]:
    """K, OTPS, acceptance length and mean share of distinct 4-grams of each mode.

    The acceptance length is 1 without speculation, and None where the engine gives none.
    """
    modes: dict[str, Mode] = {arm_of(results, mode).name: mode for mode in HEADS}
    figures: dict[Mode, dict[str, Any]] = {}
    for point in results.points:
        mode = modes[point.arm]
        shares = [
            row.distinct_4_grams
            for row in measured_requests(results)
            if row.arm == point.arm and row.distinct_4_grams is not None
        ]
        length = point.acceptance.per_step if point.acceptance else 1.0 if mode == "none" else None
        figures[mode] = {
            "num_speculative_tokens": arm_of(results, mode).num_speculative_tokens,
            "otps": point.otps,
            "acceptance_length": length,
            "distinct_4_grams": sum(shares) / len(shares) if shares else None,
        }
    return figures


def differing(results: Results) -> list[str]:
    """Ids of the prompts that not every mode answered, or not with the very same output."""
    outputs: dict[str, set[str | None]] = {}
    for row in measured_requests(results):
        outputs.setdefault(row.prompt_id, set()).add(row.output_sha256)
    return sorted(prompt for prompt, hashes in outputs.items() if len(hashes) > 1 or None in hashes)


def identity_text(results: Results) -> str:
    """Whether all modes gave the same outputs."""
    count = len({row.prompt_id for row in measured_requests(results)})
    if not (odd := differing(results)):
        return f"identical outputs: yes, {count} of {count} prompts (by token ids)"
    return (
        f"identical outputs: NO, {count - len(odd)} of {count} prompts (by token ids); "
        f"different on {', '.join(odd[:5])}"
    )
