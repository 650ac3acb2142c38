"""Choose K on this machine and compare the three modes at it: the job of ``scripts/bench-modes``.

For each set of prompts it prints a report and writes a results file with the provenance, and it writes the
figures of all sets to ``results/bench-modes.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peagle_bench.results.provenance import load_now
from peagle_bench.workloads import TEMPERATURE, Shape, Workload, make_item
from peagle_bench.workloads.prompt_files import Question, choose
from peagle_bench.workloads.public_datasets import read_prompts
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import TOKEN_IDS, differing, human_eval, measure, spec_of
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.machine_k import K_PROMPTS, choose_ks, runtime_spec
from scripts.bench.progress import Reporter
from scripts.bench.quickstart import main_figures, text

HELD_OUT = "held-out.jsonl"  #: prompts from files kept out of training, beside the weights if they ship


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
        choices=("eager", "compiled"),
        default="eager",
        help="default eager; compiled starts slowly",
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses prompts (default 0)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/bench-modes.json"),
        help="the figures; the results files (.jsonl) are written beside it",
    )
    options = parser.parse_args(words)
    if options.prompts < 2 or options.held_out_prompts < 0:
        raise SpecError(
            f"--prompts {options.prompts} --held-out-prompts {options.held_out_prompts}: allowed are "
            "at least 2 prompts, and 0 or more held-out ones",
            next_step="for example --prompts 48 --held-out-prompts 0",
        )
    return options


def prompt_sets(options: argparse.Namespace, held_out: Path) -> dict[str, Workload]:
    """Return the sets to choose K with (``k``) and to compare on; no prompt is in two of them."""
    every = human_eval(options.prompts + K_PROMPTS, max_tokens=options.max_tokens, seed=options.seed)
    sets = {
        "k": replace(every, items=every.items[options.prompts :]),
        "HumanEval": replace(every, items=every.items[: options.prompts]),
    }
    if held_out.is_file() and options.held_out_prompts:
        rows = [Question(prompt.id, prompt=prompt.text) for prompt in read_prompts(held_out)]
        shape = Shape(options.max_tokens, TEMPERATURE, extra=TOKEN_IDS)
        chosen = choose(rows, min(options.held_out_prompts, len(rows)), options.seed)
        items = tuple(make_item(question, shape, {}) for question in chosen)
        sets["held-out code"] = Workload(
            "held-out code", items, None, None, held_out.name, len(rows), temperature=TEMPERATURE
        )
    return sets


def specs_of(engine: str) -> dict[str, EndpointSpec]:
    """Return the spec of each mode; those with a head take K from each request."""
    compiled = engine == "compiled"
    return {
        mode: spec_of(mode, compiled=compiled) if mode == "none" else runtime_spec(mode, compiled=compiled)
        for mode in MODES
    }


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure one engine setting; 1 when any outputs differ or anything is left."""
    sets = prompt_sets(options, weights_dir() / HELD_OUT)
    document: dict[str, Any] = {"stand_in_weights": True, "engine": options.engine, "finals": {}}
    odd = []
    with LocalStack(reporter.say) as stack:
        with reporter.phase(f"{options.engine}: deploy the three modes"):
            endpoints = stack.deploy(specs_of(options.engine))
        with reporter.phase("choose num_speculative_tokens (K)"):
            chosen = choose_ks(stack.session, endpoints, sets.pop("k").items, reporter.say)
        names, ks = {mode: endpoints[mode].name for mode in MODES}, {m: one.k for m, one in chosen.items()}
        config = {"max_tokens": options.max_tokens, "seed": options.seed}
        for name, workload in sets.items():
            path = options.output.with_name(f"{options.output.stem}-{name.lower().replace(' ', '-')}.jsonl")
            load = load_now()
            with reporter.phase(f"answer {len(workload.items)} prompts of {name} in turns"):
                results = measure(stack, names, workload, path, config=config, say=reporter.say, ks=ks)
            print(f"\n{name}, {options.engine} engine\n\n{text(results)}\n", flush=True)
            document["finals"][name] = {
                "prompts": len(workload.items),
                **main_figures(results),
                "load": [load, load_now()],
                "provenance": results.header.provenance,
            }
            write_json(options.output, document)  # each time, so that stopping during the next loses nothing
            odd += [name] if differing(results) else []
        with reporter.phase("delete everything"):
            left = stack.delete_all() + stack.close()
    print(f"left behind: {', '.join(left) or 'nothing'}")
    if odd:
        print(f"outputs differ between modes in: {', '.join(odd)}", file=sys.stderr)
    return 1 if left or odd else 0


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    return run_job(lambda reporter: job(arguments(words), reporter))


if __name__ == "__main__":
    sys.exit(main())
