"""The whole job on one machine: three modes up, compared turn by turn, streamed, deleted, proven gone.

Run by ``scripts/quickstart``; writes ``results/quickstart.json``, the same as a results file
(``quickstart.jsonl``), and the report of it (``quickstart.html``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peagle_sm.core.spec.endpoint_spec import MODES
from peagle_sm.measure.benchmark.endpoint_arm import describe_endpoint
from peagle_sm.measure.report.files import records_of, write_page
from peagle_sm.measure.report.page import html_page
from peagle_sm.measure.results import provenance
from peagle_sm.measure.results.result_file import Results, ResultWriter
from peagle_sm.measure.workloads import public_datasets
from peagle_sm.measure.workloads.public_datasets import Prompt
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison.arms import arm_of, spec_of
from scripts.bench.comparison.client import TEMPERATURE, Invokable, request_body
from scripts.bench.comparison.run import WARM_UP, Run, measure
from scripts.bench.comparison.table import load_text, plain
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.progress import Reporter
from scripts.bench.quickstart_results import results_of

_TITLE = "HumanEval, concurrency 1, greedy, small stand-in weights"
_STREAMED_TOKENS = 96


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=64, help="HumanEval prompts (default 64)")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens per answer at most (default 128)")
    parser.add_argument("--seed", type=int, default=0, help="chooses prompts (default 0)")
    parser.add_argument("--one-by-one", action="store_true", help="start an engine when the last one is up")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/quickstart.json"),
        help="the figures; the results file (.jsonl) and the report (.html) stand beside it",
    )
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Do it all; 0 when outputs are identical and nothing is left, else 1."""
    every = public_datasets.read_human_eval(public_datasets.human_eval_file())
    prompts = public_datasets.choose(every, options.prompts, options.seed)
    with LocalStack(reporter.say) as stack:
        with reporter.phase("deploy the three modes"):
            endpoints = stack.deploy({mode: spec_of(mode) for mode in MODES}, together=not options.one_by_one)
        arms = [arm_of(endpoint, mode) for mode, endpoint in zip(MODES, endpoints.values(), strict=True)]
        with reporter.phase(f"answer {len(prompts)} prompts in turns"):
            run = measure(
                _TITLE,
                arms,
                {endpoint.name: endpoint for endpoint in endpoints.values()},
                prompts,
                warm_up=public_datasets.warm_up_prompts(every, prompts, WARM_UP),
                max_tokens=options.max_tokens,
                reporter=reporter,
            )
        _show(run)
        with reporter.phase("stream one completion from the p-eagle endpoint"):
            streamed = stream_live(endpoints["p-eagle"], prompts[0])
        described = [describe_endpoint(stack.session, arm.name).arm for arm in arms]
        origin = provenance.collect(
            seed=options.seed,
            engine=stack.engines(),
            spec_hashes={arm.mode: endpoints[arm.mode].status().summary.spec_hash for arm in arms},
            weights=weights_dir(),
        )
        with reporter.phase("delete everything"):
            left = stack.delete_all()
            print(f"\nresources left: {', '.join(left) or 'none'}")
        with reporter.phase("end the local SageMaker"):
            left += stack.close()
    print(f"processes left: {', '.join(stack.left) or 'none'}\n")
    write_json(options.output, document(run, left, origin, reporter.seconds, streamed))
    write_report(options, results_of(run, described, config=settings(options, len(every)), origin=origin))
    return verdict(run, left)


def document(
    run: Run, left: list[str], origin: dict[str, Any], seconds: dict[str, float], streamed: dict[str, Any]
) -> dict[str, Any]:
    """What ``results/quickstart.json`` says."""
    report, third = run.report(), run.least_repetitive()
    return {
        "stand_in_weights": True,
        "prompts": report.prompts,
        "identical_outputs": report.identical_outputs,
        "identity_by": report.identity_by,
        "modes": {arm.mode: asdict(arm) for arm in report.arms},
        "speed_ups": report.to_dict()["speed_ups"],
        "least_repetitive_third": third.to_dict(),
        "leftovers": left,
        "streamed": streamed,
        "load": {"before": run.load[0], "after": run.load[1]},
        "seconds": dict(seconds),
        "provenance": origin,
        "samples": [sample.to_dict() for sample in run.samples],
    }


def settings(options: argparse.Namespace, available: int) -> dict[str, Any]:
    """What was asked for, as the header of the results file gives it."""
    return {
        "workload": {
            "name": "HumanEval",
            "prompts": options.prompts,
            "available": available,
            "license": public_datasets.HUMAN_EVAL_LICENSE,
            "temperature": TEMPERATURE,
        },
        "max_tokens": options.max_tokens,
        "seed": options.seed,
    }


def write_report(options: argparse.Namespace, results: Results) -> None:
    """Write the results file and the page made of it, and say where they are."""
    file, page = options.output.with_suffix(".jsonl"), options.output.with_suffix(".html")
    with ResultWriter(file, overwrite=True) as writer:
        for record in records_of(results):
            writer.append(record)
    write_page(page, html_page([results], title="P-EAGLE quickstart"))
    print(f"report: {page} (open it in a browser; `peagle-sm report {file}` prints it)\n")


def verdict(run: Run, left: Sequence[str]) -> int:
    """The exit code, with the reason on stderr when it is not 0."""
    differing = run.report().differing
    if differing:
        print(
            f"outputs differ between modes on {len(differing)} prompts: {', '.join(differing[:5])}",
            file=sys.stderr,
        )
    if left:
        print(f"left behind: {', '.join(left)}", file=sys.stderr)
    return 1 if differing or left else 0


def _show(run: Run) -> None:
    print("\n" + plain(run.report()) + "\n\n" + plain(run.least_repetitive()))
    print("\n" + load_text(run.load) + "\n", flush=True)


def stream_live(endpoint: Invokable, prompt: Prompt) -> dict[str, Any]:
    """Write one answer to stdout as it comes; return its time to first token and tokens per second."""
    print(f"{prompt.id}, streamed:\n{prompt.text}", end="", flush=True)
    stream = endpoint.stream(request_body(prompt, _STREAMED_TOKENS, "streamed"))
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    summary = stream.summary
    figures = {
        "ttft_ms": summary.ttft_ms,
        "otps": summary.otps,
        "output_tokens": summary.output_tokens,
        "acceptance_length": summary.acceptance_length,
    }
    words = [f"{name} {value:.1f}" for name, value in figures.items() if value is not None]
    print(f"\n[{', '.join(words)}]", flush=True)
    return figures


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    options = arguments(words)
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    sys.exit(main())
