"""Deploy the three modes on this machine, compare them prompt by prompt, stream an answer, and delete them.

Run by ``scripts/quickstart``; writes a results file (``results/quickstart.jsonl``), the report of it
(``.html``), and the main figures with what became of the endpoints (``.json``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from peagle_bench.commands.report import render_report
from peagle_bench.load import WorkItem
from peagle_bench.report import tables
from peagle_bench.report.merging import view_of
from peagle_bench.report.page import html_page
from peagle_bench.results.result_file import Results, ResultWriter, records_of
from peagle_bench.tune.windows import with_k
from peagle_sm.aws.files import write_file
from peagle_sm.cli.terminal import show
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from scripts.bench.comparison import (
    HEADS,
    THIRD,
    differing,
    figures,
    human_eval,
    identity_text,
    measure,
    spec_of,
    speed_up,
    within,
)
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.machine_k import K_PROMPTS, MachineK, choose_ks, runtime_spec
from scripts.bench.progress import Reporter

_STREAMED_TOKENS = 96


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=56, help="number of HumanEval prompts (default 56)")
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="maximum output tokens per answer (default 128)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of prompts (default 0)")
    parser.add_argument("--one-by-one", action="store_true", help="start the engines one after the other")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/quickstart.json"),
        help="the figures; the results file (.jsonl) and the report (.html) are written beside it",
    )
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Do it all; 0 when outputs are identical and nothing is left, else 1."""
    every = human_eval(options.prompts + K_PROMPTS, max_tokens=options.max_tokens, seed=options.seed)
    # K must not be judged by the prompts that it was chosen with.
    workload = replace(every, items=every.items[: options.prompts])
    file = options.output.with_suffix(".jsonl")
    with LocalStack(reporter.say) as stack:
        with reporter.phase("deploy the three modes"):
            specs: dict[str, EndpointSpec] = {
                mode: spec_of(mode) if mode == "none" else runtime_spec(mode) for mode in HEADS
            }
            endpoints = stack.deploy(specs, together=not options.one_by_one)
        with reporter.phase("choose num_speculative_tokens (K) on this machine"):
            chosen = choose_ks(stack.session, endpoints, every.items[options.prompts :], reporter.say)
            ks = {mode: choice.k for mode, choice in chosen.items()}
        with reporter.phase(f"answer {options.prompts} prompts in turns"):
            names = {mode: endpoints[mode].name for mode in HEADS}
            config = {"max_tokens": options.max_tokens, "seed": options.seed}
            results = measure(stack, names, workload, file, config=config, say=reporter.say, ks=ks)
        print("\n" + text(results) + "\n", flush=True)
        with reporter.phase("stream one completion from the p-eagle endpoint"):
            streamed = stream_live(endpoints["p-eagle"], workload.items[0], ks["p-eagle"])
        with reporter.phase("delete everything"):
            left = stack.delete_all()
            print(f"\nresources left: {', '.join(left) or 'none'}")
        with reporter.phase("end the local SageMaker"):
            left += stack.close()
    print(f"processes left: {', '.join(stack.left) or 'none'}\n")
    write_json(options.output, document(results, left, reporter.seconds, streamed, chosen))
    write_report(file, results)
    return verdict(results, left)


def text(results: Results) -> str:
    """What `peagle-sm report` prints, the same figures of the least repetitive third, and the outputs."""
    third, modes = within(results, THIRD), figures(results)
    view = view_of([third])
    heading = f"The {THIRD} of the prompts ({_prompts(third)} of {_prompts(results)}):"
    ks = ", ".join(f"{mode} {row['num_speculative_tokens']}" for mode, row in modes.items() if mode != "none")
    ks += ", chosen on this machine"
    parts = [render_report(view_of([results])), f"{heading} a draft head guesses repetition easily."]
    parts += [show(table) for table in (tables.ratios(view), tables.points(view)) if table is not None]
    parts += advice(results)
    return "\n\n".join([*parts, f"num_speculative_tokens: {ks}\n{identity_text(results)}"])


def advice(results: Results) -> list[str]:
    """What to do where P-EAGLE is significantly slower than EAGLE-3 on this machine; empty elsewhere."""
    ratio = speed_up(results, "p-eagle", "eagle3")
    if ratio is None or ratio.high >= 1:
        return []
    return [
        "P-EAGLE lost on this machine. Its one pass has K slots, and this processor pays for each of them;\n"
        "a GPU computes them at once. Do not choose a mode from this run. Run this command on the instance\n"
        "type that you will use: peagle-sm compare --modes none,eagle3,p-eagle --spec peagle.yaml"
    ]


def _prompts(results: Results) -> int:
    return len({row.prompt_id for row in results.requests})


def document(
    results: Results,
    left: list[str],
    seconds: dict[str, float],
    streamed: dict[str, Any],
    chosen: Mapping[Mode, MachineK],
) -> dict[str, Any]:
    """What ``results/quickstart.json`` says."""
    third = within(results, THIRD)
    return {
        **results.header.target_data(),
        "prompts": _prompts(results),
        "identical_outputs": not differing(results),
        **main_figures(results),
        "num_speculative_tokens": {mode: asdict(choice) for mode, choice in chosen.items()},
        "least_repetitive_third": {"prompts": _prompts(third), **main_figures(third)},
        "leftovers": left,
        "streamed": streamed,
        "seconds": dict(seconds),
        "provenance": results.header.provenance,
    }


def main_figures(results: Results) -> dict[str, Any]:
    """The figures of each mode, and the speed-ups with their intervals."""
    pairs: tuple[tuple[Mode, Mode], ...] = (("eagle3", "none"), ("p-eagle", "none"), ("p-eagle", "eagle3"))
    ratios = {f"{a} over {b}": ratio for a, b in pairs if (ratio := speed_up(results, a, b))}
    return {
        "modes": figures(results),
        "speed_ups": {name: {**asdict(ratio), "shown": ratio.shown} for name, ratio in ratios.items()},
    }


def write_report(file: Path, results: Results) -> None:
    """Write the results file and the page made of it, and say where they are."""
    run_id = f"quickstart-{results.header.provenance['date']}"
    results = replace(results, header=replace(results.header, run_id=run_id, command="quickstart"))
    page = file.with_suffix(".html")
    with ResultWriter(file, overwrite=True) as writer:
        for record in records_of(results):
            writer.append(record)
    write_file(page, html_page([results], title="P-EAGLE quickstart"), parents=True)
    print(f"report: {page} (open it in a browser; `peagle-sm report {file}` prints it)\n")


def verdict(results: Results, left: Sequence[str]) -> int:
    """The exit code, with the reason on stderr when it is not 0."""
    odd = differing(results)
    if odd:
        print(f"outputs differ between modes on {len(odd)} prompts: {', '.join(odd[:5])}", file=sys.stderr)
    if left:
        print(f"left behind: {', '.join(left)}", file=sys.stderr)
    return 1 if odd or left else 0


class Stream(Protocol):
    """An answer while it is written; ``summary`` (figures of the request) exists after the end."""

    @property
    def summary(self) -> Any: ...  # noqa: D102
    def __iter__(self) -> Iterator[Any]: ...


class Streams(Protocol):
    """The part of :class:`peagle_sm.service.Endpoint` that the last completion needs."""

    def stream(self, body: Mapping[str, Any] | None = None) -> Stream: ...  # noqa: D102


def stream_live(endpoint: Streams, item: WorkItem, k: int) -> dict[str, Any]:
    """Write one answer to stdout as it comes; return its time to first token and tokens per second."""
    print(f"{item.prompt_id}, streamed:\n{item.body['prompt']}", end="", flush=True)
    # A salt of its own: the prefix cache holds the prompt already.
    body = {**item.body, "max_tokens": _STREAMED_TOKENS, "cache_salt": "streamed"}
    stream = endpoint.stream(with_k(body, k))
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
