"""Measure the workload packs on SmolLM2 in three modes, for the page docs/reference/pack-runs.md.

Run by ``scripts/pack-runs``. Every pack's figures are written as soon as it is measured, and replace its
earlier ones in the record: an interrupted run keeps what it has, and ``--packs`` repeats single packs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.acceptance import metrics_page
from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.packs import PACKS, chosen_packs
from peagle_bench.packs.guardrails import PERSONAL
from peagle_bench.packs.identity import body_of
from peagle_bench.packs.pack import Make, Pack, PackWork
from peagle_bench.packs.run import PackDependencies, PackOptions, run_packs
from peagle_bench.packs.streaming_guard import Policy, guarded
from peagle_bench.verify.engines import EndpointEngine, Engine
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, ServingSpec
from peagle_sm.core.spec.modes import Mode
from scripts.bench.comparison import HEADS, dependencies, described_arm, spec_of
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.pack_figures import figures_of
from scripts.bench.progress import Reporter, seconds_left

RECORD = Path("docs/reference/packs/runs.json")
SEED = 0
_ASKED_AGAIN = 3  #: answers of a pack and a head that differ; each takes seconds, at 8,192 tokens minutes
#: The packs need cached tokens in the answers, and a tool parser.
_ENV = {
    "SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS": "true",
    "SM_VLLM_TOOL_CALL_PARSER": "hermes",
    "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true",
}


@dataclass(frozen=True)
class Size:
    """Longest context in tokens and units of a pack, and about how many minutes it takes on two cores."""

    context: int
    units: int
    minutes: float


SIZES = {
    "rag": Size(1280, 6, 4),
    "long-context": Size(8192, 2, 8),
    "agents": Size(2048, 6, 4),
    "guardrails": Size(8192, 6, 4),
    "structured-output": Size(2048, 3, 3),
    "adversarial": Size(1024, 6, 6),
    "languages": Size(1024, 6, 4),
}
#: The request that a reader sees, where it is not the first one: its kind, and its turn.
_EXAMPLES = {
    "agents": ("call", 2),
    "guardrails": ("letter", 0),
    "adversarial": ("code-switching", 0),
    "languages": ("Spanish", 0),
}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    minutes = sum(size.minutes for size in SIZES.values())
    parser = argparse.ArgumentParser(
        prog="scripts/pack-runs",
        description=f"{__doc__.splitlines()[0]} All packs take about {minutes:.0f} minutes on two cores.",
    )
    parser.add_argument("--packs", default="all", help="packs, separated by commas, or all (default)")
    parser.add_argument("--units", type=int, help="units of each pack (default: its own number)")
    parser.add_argument("--output", type=Path, default=RECORD, help=f"the record (default {RECORD})")
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Do it all; 0 when nothing is left, else 1."""
    packs = chosen_packs(options.packs)
    if options.units is not None and options.units < 1:
        raise SpecError(
            f"--units: found {options.units}; allowed: 1 or more",
            next_step="leave it out, or correct it: --units 2",
        )
    record = read_record(options.output)
    pace = Pace([SIZES[pack.name].minutes * 60 for pack in packs])
    with LocalStack(reporter.say) as stack:
        with reporter.phase("deploy SmolLM2-135M-Instruct in three modes"):
            endpoints = stack.deploy({mode: spec_for(mode) for mode in HEADS})
        described = [described_arm(stack, endpoints[mode].name, mode) for mode in HEADS]
        pace.begin()
        for number, pack in enumerate(packs, start=1):
            with reporter.phase(f"pack {pack.name}, {number} of {len(packs)}"):
                size = SIZES[pack.name]
                size = replace(size, units=options.units or size.units)
                record["packs"][pack.name] = measured(
                    stack, pack, size, described, lambda line: reporter.say(f"{line} ({pace.left()})")
                )
            pace.done()
            record["packs"] = {name: record["packs"][name] for name in PACKS if name in record["packs"]}
            write_json(options.output, record)
        with reporter.phase("delete everything"):
            left = stack.delete_all()
        with reporter.phase("end the local SageMaker"):
            left += stack.close()
    return 1 if left else 0


def spec_for(mode: Mode) -> EndpointSpec:
    """The quickstart's spec of a mode, with what the packs need."""
    return spec_of(mode).model_copy(update={"serving": ServingSpec(env=_ENV)})


def read_record(path: Path) -> dict[str, Any]:
    """The record of earlier runs, or an empty one.

    Raises:
        SpecError: the file is another one.
    """
    if not path.exists():
        return {"seed": SEED, "packs": {}}
    record: Any = None
    with suppress(ValueError):
        record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict) or not isinstance(record.get("packs"), dict):
        raise SpecError(
            f"--output: {path} is not a record of pack runs",
            next_step=f"name another file, or delete it: rm {path}",
        )
    return record


class Pace:
    """Estimate of the time that is left, from the seconds of the finished packs and of what was expected."""

    def __init__(self, expected_s: Sequence[float], clock: Any = time.monotonic) -> None:
        self._expected_s = list(expected_s)
        self._clock = clock
        self._finished_s: list[float] = []
        self.begin()

    def begin(self) -> None:
        """Start a pack."""
        self._began_s = self._clock()

    def done(self) -> None:
        """Start the next pack."""
        self._finished_s.append(self._clock() - self._began_s)
        self.begin()

    def left(self) -> str:
        """``about 12 min left``."""
        left_s = seconds_left(self._expected_s, self._finished_s, self._clock() - self._began_s)
        return f"about {max(1, round(left_s / 60))} min left"


def measured(
    stack: LocalStack, pack: Pack, size: Size, described: Sequence[Described], say: Any
) -> dict[str, Any]:
    """Run one pack on all arms, and return its figures, their provenance, and one example."""
    around = PackDependencies(
        dependencies(stack, SEED, say),
        lambda arm: EndpointEngine(stack.session, arm.endpoint, arm.component),
        lambda arm: metrics_page(stack.session, arm),
    )
    works: list[PackWork] = []

    def make(settings: Make) -> PackWork:
        works.append(pack.make(settings))
        return works[-1]

    path = Path("results") / "packs" / f"{pack.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    options = PackOptions(SEED, size.units, size.context, _ASKED_AGAIN)
    began = time.monotonic()
    results = run_packs([nullcontext(described)], [replace(pack, make=make)], path, options, around).results
    seconds = round(time.monotonic() - began, 1)
    if not works:
        raise SpecError(f"{pack.name}: {results.packs[0].why}")
    engine = around.engine_of(next(each.arm for each in described if each.arm.mode == "p-eagle"))
    return {
        "context": size.context,
        "units": size.units,
        "seconds": seconds,
        "notes": list(works[-1].notes),
        "figures_of": results.header.label,
        "provenance": {
            name: results.header.provenance[name]
            for name in ("date", "machine", "git_revision", "versions", "engine_versions")
        },
        "arms": figures_of(results),
        "example": example(pack.name, works[-1], engine),
    }


def example(name: str, work: PackWork, engine: Engine) -> dict[str, Any]:
    """One request and its answer."""
    kind, turn = _EXAMPLES.get(name, (work.items[0].category, 0))
    item = next((item for item in work.items if turn or item.category == kind), work.items[0])
    body = body_of((item.prompt_id, turn), work.items, {})
    (choice,) = engine.ask(body)["choices"]
    if "messages" in body:
        prompt, answer = body["messages"][-1]["content"], choice["message"]["content"] or ""
    else:
        tokens = f"[{len(body['prompt']):,} tokens of documents]"
        prompt, answer = f"{tokens}\n\nQuestion: {work.facts[item.prompt_id]}", choice["text"]
    shown = {"kind": kind, "mode": "p-eagle", "prompt": prompt, "answer": answer}
    if name == "guardrails":
        shown["delivered"] = guarded([answer], Policy((PERSONAL,), None)).delivered
    return shown


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    options = arguments(words)
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    sys.exit(main())
