"""Choose K on this machine and compare the modes at it: the job of ``scripts/bench-modes``.

Adds this machine kind's figures to the records beside the page, writes the page from all records, and writes
``results/bench-modes.json`` with every request.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from peagle_bench.load import WorkItem
from peagle_bench.report.files import records_of
from peagle_bench.results.provenance import load_now, weights_sha256
from peagle_bench.results.result_file import Results, to_line
from peagle_bench.workloads import TEMPERATURE, Shape, Workload, make_item
from peagle_bench.workloads.prompt_files import Question, choose
from peagle_bench.workloads.public_datasets import read_prompts
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import TOKEN_IDS, differing, human_eval, measure, spec_of
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.machine_k import K_PROMPTS, MachineK, choose_ks, runtime_spec
from scripts.bench.modes.page import page, table
from scripts.bench.modes.record import (
    ENGINES,
    Engine,
    EngineRecord,
    arm_figures,
    choice_of,
    comparison_of,
    final_of,
    machine_of,
    origin_of,
    read_records,
    write_record,
)
from scripts.bench.progress import Reporter

HELD_OUT = "held-out.jsonl"  #: prompts from files kept out of training, beside the weights if they ship


@dataclass(frozen=True)
class Prompts:
    """Prompts to choose K with, and those of each comparison by name; nothing is in both."""

    k: Sequence[WorkItem]
    finals: Mapping[str, Workload]


@dataclass(frozen=True)
class Measured:
    """One engine setting: K of each head, and each comparison with the load average around it."""

    chosen: Mapping[Mode, MachineK]
    finals: Mapping[str, Results]
    loads: Mapping[str, tuple[float, float]]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SpecError: a number of prompts is out of range.
    """
    parser = argparse.ArgumentParser(prog="scripts/bench-modes", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=112, help="HumanEval prompts to compare (default 112)")
    parser.add_argument(
        "--held-out-prompts", type=int, default=218, help="prompts of held-out code to compare (default 218)"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens per answer at most (default 128)")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="eager",
        help="default eager; compiled starts slowly",
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses prompts (default 0)")
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("docs/reference/modes.md"),
        help="the page to write; records are in the folder of this name without .md (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/bench-modes.json"),
        help="all requests",
    )
    options = parser.parse_args(words)
    if options.prompts < 2 or options.held_out_prompts < 0:
        raise SpecError(
            f"--prompts {options.prompts} --held-out-prompts {options.held_out_prompts}: allowed are "
            "at least 2 prompts, and 0 or more held-out ones",
            next_step="for example --prompts 48 --held-out-prompts 0",
        )
    return options


def choose_prompts(options: argparse.Namespace, held_out: Path) -> Prompts:
    """HumanEval, split into prompts to compare on and to choose K with, and held-out code if it ships."""
    every = human_eval(options.prompts + K_PROMPTS, max_tokens=options.max_tokens, seed=options.seed)
    finals = {"HumanEval": replace(every, items=every.items[: options.prompts])}
    if held_out.is_file() and options.held_out_prompts:
        finals["held-out code"] = _held_out(held_out, options)
    return Prompts(every.items[options.prompts :], finals)


def _held_out(path: Path, options: argparse.Namespace) -> Workload:
    rows = [Question(prompt.id, prompt=prompt.text) for prompt in read_prompts(path)]
    shape = Shape(options.max_tokens, TEMPERATURE, extra=TOKEN_IDS)
    chosen = choose(rows, min(options.held_out_prompts, len(rows)), options.seed)
    items = tuple(make_item(question, shape, {}) for question in chosen)
    return Workload("held-out code", items, None, None, path.name, len(rows), temperature=TEMPERATURE)


class Stack(Protocol):
    """The part of :class:`scripts.bench.local_stack.LocalStack` that a measurement needs."""

    def deploy(self, specs: Mapping[str, EndpointSpec]) -> dict[str, Any]: ...  # noqa: D102


@dataclass(frozen=True)
class Steps:
    """How K is chosen, how endpoints are compared, the load average, and what is kept: made up in tests."""

    choose: Callable[[Mapping[str, Any], Sequence[WorkItem]], dict[Mode, MachineK]]
    compare: Callable[[Mapping[Mode, str], Workload, Mapping[Mode, int]], Results]
    load: Callable[[], float]
    keep: Callable[[Measured], None]


def measure_engine(
    stack: Stack, engine: Engine, prompts: Prompts, steps: Steps, reporter: Reporter
) -> Measured:
    """Deploy the three modes, choose K of both heads, and compare the modes at it on other prompts.

    What is measured so far is kept after each comparison.
    """
    compiled = engine == "compiled"
    with reporter.phase(f"{engine}: deploy the three modes"):
        specs = {
            mode: spec_of(mode, compiled=compiled)
            if mode == "none"
            else runtime_spec(mode, compiled=compiled)
            for mode in MODES
        }
        endpoints = stack.deploy({str(mode): spec for mode, spec in specs.items()})
    with reporter.phase(f"{engine}: choose num_speculative_tokens (K)"):
        chosen = steps.choose(endpoints, prompts.k)
    names: dict[Mode, str] = {mode: endpoints[mode].name for mode in MODES}
    ks = {mode: choice.k for mode, choice in chosen.items()}
    finals: dict[str, Results] = {}
    loads: dict[str, tuple[float, float]] = {}
    for name, workload in prompts.finals.items():
        before = steps.load()
        with reporter.phase(f"{engine}: {len(workload.items)} prompts of {name} in turns"):
            finals[name] = steps.compare(names, workload, ks)
        loads[name] = (before, steps.load())
        # After each comparison, so that stopping during the next one loses nothing.
        steps.keep(Measured(chosen, dict(finals), dict(loads)))
    return Measured(chosen, finals, loads)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure one engine setting; 1 when any outputs differ or anything is left."""
    prompts = choose_prompts(options, weights_dir() / HELD_OUT)
    config = {"max_tokens": options.max_tokens, "seed": options.seed}
    # Each comparison overwrites the file of the one before; all of them end up in the output.
    ask = partial(measure, path=options.output.with_suffix(".jsonl"), config=config, say=reporter.say)
    with LocalStack(reporter.say) as stack:
        steps = Steps(
            choose=lambda endpoints, items: choose_ks(stack.session, endpoints, items, reporter.say),
            compare=lambda names, workload, ks: ask(stack, names, workload, ks=ks),
            load=load_now,
            keep=lambda found: write(options, found, reporter.say),
        )
        found = measure_engine(stack, options.engine, prompts, steps, reporter)
        for name, final in found.finals.items():
            print(f"\n{name}, {options.engine}\n\n{table(comparison_of(final))}\n", flush=True)
        with reporter.phase("delete everything"):
            left = stack.delete_all()
            left += stack.close()
    print(f"left behind: {', '.join(left) or 'nothing'}")
    odd = [name for name, run in found.finals.items() if differing(run)]
    if odd:
        print(f"outputs differ between modes in: {', '.join(odd)}", file=sys.stderr)
    return 1 if left or odd else 0


def write(options: argparse.Namespace, found: Measured, say: Callable[[str], None]) -> None:
    """Write the requests, this machine kind's record, and the page from all records."""
    write_json(options.output, to_document(options.engine, found))
    folder = options.page.with_suffix("")
    provenances = [final.header.provenance for final in found.finals.values()]
    path = write_record(
        folder, machine_of(provenances[0]), options.engine, record_of(options, found, provenances)
    )
    say(f"written: {path}")
    options.page.write_text(page(read_records(folder), weights_sha256(weights_dir())), encoding="utf-8")
    say(f"written: {options.page}")


def record_of(
    options: argparse.Namespace, found: Measured, provenances: Sequence[Mapping[str, Any]]
) -> EngineRecord:
    """The record of one engine setting."""
    return EngineRecord(
        answers="streamed",
        command=command_of(options),
        max_tokens=options.max_tokens,
        choices={mode: choice_of(choice) for mode, choice in found.chosen.items()},
        finals={name: final_of(final, found.loads[name]) for name, final in found.finals.items()},
        provenance=origin_of(provenances),
    )


def command_of(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    return (
        f"scripts/bench-modes --engine {options.engine} --prompts {options.prompts} "
        f"--held-out-prompts {options.held_out_prompts} --max-tokens {options.max_tokens} "
        f"--seed {options.seed}"
    )


def to_document(engine: Engine, found: Measured) -> dict[str, Any]:
    """What ``results/bench-modes.json`` says."""
    return {
        "stand_in_weights": True,
        "k": {engine: {mode: choice.k for mode, choice in found.chosen.items()}},
        "engines": {engine: {"finals": {name: _to_dict(final) for name, final in found.finals.items()}}},
    }


def _to_dict(results: Results) -> dict[str, Any]:
    """The figures, and every record of the results file."""
    prompts = len({row.prompt_id for row in results.requests})
    report = {
        "prompts": prompts,
        "arms": [{"mode": mode, **row} for mode, row in arm_figures(results).items()],
    }
    return {"report": report, "records": [json.loads(to_line(record)) for record in records_of(results)]}


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    return run_job(lambda reporter: job(arguments(words), reporter))


if __name__ == "__main__":
    sys.exit(main())
