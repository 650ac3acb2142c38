"""Find the best K of each mode and measure the modes at it: the job of ``scripts/bench-modes``.

Writes ``docs/reference/modes.md`` and ``results/bench-modes.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.report.files import records_of
from peagle_sm.measure.results.result_file import Results, to_line
from peagle_sm.measure.workloads import TEMPERATURE, Shape, Workload, make_item
from peagle_sm.measure.workloads.prompt_files import Question, choose
from peagle_sm.measure.workloads.public_datasets import read_prompts
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import TOKEN_IDS, differing, human_eval, measure
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.modes.page import arm_figures, page, table
from scripts.bench.modes.sweep import Engine, EngineResult, sweep
from scripts.bench.progress import Reporter

HELD_OUT = "held-out.jsonl"  #: prompts from files kept out of training, beside the weights if they ship


@dataclass(frozen=True)
class Prompts:
    """What is asked: ``sweep`` chooses K, the ``finals`` (by name) judge it, nothing is in both."""

    sweep: Workload
    finals: dict[str, Workload]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SpecError: a K below 1, or none.
    """
    parser = argparse.ArgumentParser(prog="scripts/bench-modes", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=48, help="prompts for each K (default 48)")
    parser.add_argument(
        "--final-prompts", type=int, default=112, help="other prompts, for the final (default 112)"
    )
    parser.add_argument(
        "--held-out-prompts", type=int, default=218, help="of held-out code, for the final (default 218)"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens per answer at most (default 128)")
    parser.add_argument("--ks", default="3,5,7,9", help="num_speculative_tokens to try (default 3,5,7,9)")
    parser.add_argument("--compiled", action="store_true", help="also compiled engines (45 s a start)")
    parser.add_argument("--compiled-ks", help="K to try with compiled engines (default: as --ks)")
    parser.add_argument("--quick", action="store_true", help="a trial: 8 prompts a K and 8 more, 64 tokens")
    parser.add_argument("--seed", type=int, default=0, help="chooses prompts (default 0)")
    page = Path("docs/reference/modes.md")
    parser.add_argument("--page", type=Path, default=page, help="the page to write")
    parser.add_argument("--output", type=Path, default=Path("results/bench-modes.json"), help="the figures")
    options = parser.parse_args(words)
    options.ks = parse_ks(options.ks)
    options.compiled_ks = parse_ks(options.compiled_ks) if options.compiled_ks else options.ks
    if options.quick:
        options.prompts, options.max_tokens = 8, 64
        options.final_prompts = options.held_out_prompts = 8
    return options


def parse_ks(text: str) -> list[int]:
    """``3,5,7`` as numbers, ascending and once each.

    Raises:
        SpecError: something else than whole numbers from 1 up.
    """
    try:
        ks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        ks = []
    if not ks or ks[0] < 1:
        raise SpecError(
            f"--ks {text!r}: allowed are whole numbers from 1 up, separated by commas",
            next_step="for example --ks 3,5,7,9",
        )
    return ks


def choose_prompts(options: argparse.Namespace, held_out: Path) -> Prompts:
    """HumanEval, split into the sweep's prompts and the final's, and held-out code where it ships."""
    every = human_eval(
        options.prompts + options.final_prompts, max_tokens=options.max_tokens, seed=options.seed
    )
    finals = {"HumanEval": replace(every, items=every.items[options.prompts :])}
    if held_out.is_file():
        finals["held-out code"] = _held_out(held_out, options)
    return Prompts(sweep=replace(every, items=every.items[: options.prompts]), finals=finals)


def _held_out(path: Path, options: argparse.Namespace) -> Workload:
    rows = [Question(prompt.id, prompt=prompt.text) for prompt in read_prompts(path)]
    shape = Shape(options.max_tokens, TEMPERATURE, extra=TOKEN_IDS)
    chosen = choose(rows, min(options.held_out_prompts, len(rows)), options.seed)
    items = tuple(make_item(question, shape, {}) for question in chosen)
    return Workload("held-out code", items, None, None, path.name, len(rows), temperature=TEMPERATURE)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure every engine setting asked for; 1 when any outputs differ or anything is left."""
    prompts = choose_prompts(options, weights_dir() / HELD_OUT)
    engines: list[Engine] = ["eager", "compiled"] if options.compiled else ["eager"]
    config = {"max_tokens": options.max_tokens, "seed": options.seed}
    # Each comparison overwrites the file of the one before; all of them end up in the output.
    file = options.output.with_suffix(".jsonl")
    results: list[EngineResult] = []
    with LocalStack(reporter.say) as stack:
        ask = partial(measure, stack, path=file, config=config, say=reporter.say)
        for engine in engines:
            ks = options.compiled_ks if engine == "compiled" else options.ks
            found = sweep(stack, engine, ks, prompts.sweep, prompts.finals, ask, reporter)
            results.append(found)
            for name, final in found.finals.items():
                print(f"\n{name}, {engine}\n\n{table(final)}\n", flush=True)
            # After each setting, so that stopping during the next one loses nothing.
            _write(options, results, reporter.say)
        with reporter.phase("delete everything"):
            left = stack.delete_all()
            left += stack.close()
    print(f"left behind: {', '.join(left) or 'nothing'}")
    runs = {
        f"{found.engine}, {name}": run
        for found in results
        for name, run in (*((f"K={k}", block) for k, block in found.blocks.items()), *found.finals.items())
    }
    odd = [title for title, run in runs.items() if differing(run)]
    if odd:
        print(f"outputs differ between modes in: {', '.join(odd)}", file=sys.stderr)
    return 1 if left or odd else 0


def _write(options: argparse.Namespace, results: Sequence[EngineResult], say: Callable[[str], None]) -> None:
    document = to_document(results, settings_of(options))
    write_json(options.output, document)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(results, document["settings"], document["provenance"]), encoding="utf-8")
    say(f"written: {options.page}")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, as the page and the result file give it."""
    names = ("prompts", "final_prompts", "held_out_prompts", "max_tokens", "ks", "compiled_ks")
    return {name: getattr(options, name) for name in (*names, "quick", "seed")}


def to_document(results: Sequence[EngineResult], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What ``results/bench-modes.json`` says."""
    origins = [next(iter(found.finals.values())).header.provenance for found in results]
    return {
        "stand_in_weights": True,
        "settings": dict(settings),
        "best_k": {found.engine: dict(found.best) for found in results},
        "engines": {
            found.engine: {
                "blocks": {str(k): _to_dict(block) for k, block in found.blocks.items()},
                "finals": {name: _to_dict(final) for name, final in found.finals.items()},
            }
            for found in results
        },
        "provenance": {
            **origins[0],
            "engine": [row for origin in origins for row in origin["engine"]],
            "spec_sha256": {
                name: value for origin in origins for name, value in origin["spec_sha256"].items()
            },
        },
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
