"""Deploy SmolLM2 in three modes on this machine, ask each a question, compare them, and delete them.

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
from peagle_bench.report.merging import view_of
from peagle_bench.report.page import html_page
from peagle_bench.results.result_file import Results, ResultWriter, records_of
from peagle_bench.verify.statistics import CheckVerdict
from peagle_sm.aws.files import write_file
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from scripts.bench.comparison import (
    HEADS,
    figures,
    identity,
    measure,
    measured_requests,
    prompts,
    spec_of,
    speed_up,
)
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack
from scripts.bench.progress import Reporter

QUESTION = "How do I reverse a string in Python?"  #: one of the chat prompts
_STREAMED_TOKENS = 80
_MOST_AGAIN = 4  #: answers of a head that are asked for again, about 5 s each on two cores
_TITLES: Mapping[Mode, str] = {"none": "no speculation", "eagle3": "EAGLE-3", "p-eagle": "P-EAGLE"}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--prompts",
        type=int,
        default=24,
        help="number of prompts: chat, code and JSON in turns (default 24, at most 60)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=48, help="maximum output tokens per answer (default 48)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the choice of prompts and of the order of the modes (default 0)",
    )
    parser.add_argument("--one-by-one", action="store_true", help="start the engines one after the other")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results/quickstart.json"),
        help="the figures; the results file (.jsonl) and the report (.html) are written beside it",
    )
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Do it all; 0 when the answers are the target's own and nothing is left, else 1."""
    workload = prompts(options.prompts, max_tokens=options.max_tokens, seed=options.seed)
    file = options.output.with_suffix(".jsonl")
    with LocalStack(reporter.say) as stack:
        with reporter.phase("deploy SmolLM2-135M-Instruct in three modes"):
            specs: dict[str, EndpointSpec] = {mode: spec_of(mode) for mode in HEADS}
            endpoints = stack.deploy(specs, together=not options.one_by_one)
        with reporter.phase("ask each endpoint a question"):
            streamed = {mode: stream_live(endpoints[mode], mode) for mode in HEADS}
        with reporter.phase(f"answer {options.prompts} prompts in turns"):
            names = {mode: endpoints[mode].name for mode in HEADS}
            config = {"max_tokens": options.max_tokens, "seed": options.seed}
            results = measure(stack, names, workload, file, config=config, say=reporter.say)
        with reporter.phase("compare the answers by token id"):
            verdicts = identity(stack, results, workload.items, _MOST_AGAIN)
        print("\n" + text(results, verdicts) + "\n", flush=True)
        with reporter.phase("delete everything"):
            left = stack.delete_all()
            print(f"\nresources left: {', '.join(left) or 'none'}")
        with reporter.phase("end the local SageMaker"):
            left += stack.close()
    print(f"processes left: {', '.join(stack.left) or 'none'}\n")
    write_json(options.output, document(results, verdicts, left, reporter.seconds, streamed))
    write_report(file, results)
    return exit_code(verdicts, left)


def text(results: Results, verdicts: Mapping[Mode, CheckVerdict]) -> str:
    """What `peagle-sm report` prints, whether the answers are the same, and what to do next."""
    lines = [f"{_TITLES[mode]}: {verdict.summary} (by token id)" for mode, verdict in verdicts.items()]
    return "\n\n".join([render_report(view_of([results])), "\n".join(lines), *advice(results)])


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


def document(
    results: Results,
    verdicts: Mapping[Mode, CheckVerdict],
    left: list[str],
    seconds: dict[str, float],
    streamed: dict[Mode, dict[str, Any]],
) -> dict[str, Any]:
    """What ``results/quickstart.json`` says."""
    pairs: tuple[tuple[Mode, Mode], ...] = (("eagle3", "none"), ("p-eagle", "none"), ("p-eagle", "eagle3"))
    ratios = {f"{a} over {b}": ratio for a, b in pairs if (ratio := speed_up(results, a, b))}
    return {
        **results.header.target_data(),
        "prompts": len({row.prompt_id for row in measured_requests(results)}),
        "modes": figures(results),
        "speed_ups": {name: {**asdict(ratio), "shown": ratio.shown} for name, ratio in ratios.items()},
        "answers": {
            mode: {"the_targets_own": verdict.passed, "summary": verdict.summary, **verdict.figures}
            for mode, verdict in verdicts.items()
        },
        "leftovers": left,
        "streamed": streamed,
        "seconds": dict(seconds),
        "provenance": results.header.provenance,
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


def exit_code(verdicts: Mapping[Mode, CheckVerdict], left: Sequence[str]) -> int:
    """0, or 1 with the reason on stderr: answers that are not the target's own, or something left behind."""
    wrong = {mode: verdict for mode, verdict in verdicts.items() if not verdict.passed}
    for mode, verdict in wrong.items():
        print(
            f"{_TITLES[mode]}: the answers are not shown to be the target's own: {verdict.summary}",
            file=sys.stderr,
        )
    if left:
        print(f"left behind: {', '.join(left)}", file=sys.stderr)
    return 1 if wrong or left else 0


class Stream(Protocol):
    """An answer while it is written; ``summary`` (figures of the request) exists after the end."""

    @property
    def summary(self) -> Any: ...  # noqa: D102
    def __iter__(self) -> Iterator[Any]: ...


class Streams(Protocol):
    """The part of :class:`peagle_sm.service.Endpoint` that a question needs."""

    def stream(self, body: Mapping[str, Any] | None = None) -> Stream: ...  # noqa: D102


def stream_live(endpoint: Streams, mode: Mode) -> dict[str, Any]:
    """Write one answer to stdout as it comes; return its time to first token and tokens per second."""
    print(f"\n{_TITLES[mode]}: {QUESTION}", flush=True)
    message = {"role": "user", "content": QUESTION}
    # A salt of its own, so that no prefix is in the cache when the same question is measured.
    body = {"messages": [message], "temperature": 0, "max_tokens": _STREAMED_TOKENS, "cache_salt": "streamed"}
    stream = endpoint.stream(body)
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
