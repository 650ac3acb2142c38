"""What slices cost: OTPS with them and without, at concurrency 1 and 32, in pairs of windows.

``scripts/bench-slicing`` runs it and writes docs/reference/slicing-bench.md. The two windows of a pair send
the same prompts, one after the other, in an order that changes from pair to pair: what the machine does
befalls both alike, and the interval is over pairs. The paced server's prompts are dear ones: slices
read 1,000 characters of a prompt, here letters of a dozen scripts, nearly each another one.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.load import HttpTarget, LoadOptions, Target, WorkItem, drive_load, run_quietly
from peagle_bench.load.http_client import make_target
from peagle_bench.load.points import make_point
from peagle_bench.results import provenance
from peagle_bench.results.records import Load
from peagle_bench.workloads import rounds, salted
from peagle_sm.core.request_slices import slices_of_body
from scripts.bench.clients.run import server
from scripts.bench.comparison import human_eval, spec_of
from scripts.bench.job import run_job
from scripts.bench.local_stack import LocalStack
from scripts.bench.progress import Reporter
from scripts.bench.slicing.page import ENGINE, PACED, Reading, page

LEVELS = (1, 32)
_GAP_MS, _MAX_TOKENS, _SHOWN = 5.0, 64, 1200
_SCRIPTS = (range(0x370, 0x590), range(0x5D0, 0x700), range(0x900, 0xE00), range(0x3041, 0x3100))
_LETTERS = [chr(code) for codes in _SCRIPTS for code in codes if chr(code).isalpha()]
_HUMAN_EVAL = 164  #: prompts that there are
_TIMED = 200  #: bodies whose slices are timed alone


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-slicing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--pairs", type=int, default=8, help="pairs of windows, at each load (default 8)")
    parser.add_argument("--requests", type=int, default=6, help="of a window, for each place (default 6)")
    parser.add_argument("--servers", default=f"{PACED},{ENGINE}", help="only these, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/slicing-bench.md"), help="the page to write"
    )
    return parser.parse_args(words)


def prompts(name: str, count: int, seed: int) -> list[WorkItem]:
    """Make the requests for one pair of windows: code for the engine, dear texts for the paced server."""
    if name == ENGINE:
        items = human_eval(min(count, _HUMAN_EVAL), max_tokens=_MAX_TOKENS, seed=seed).items
        return list(islice(rounds(items, repeat=True), count))
    draw = random.Random(seed)
    return [
        WorkItem(
            f"p{number}",
            {
                "prompt": f"{number} " + "".join(draw.choices(_LETTERS, k=_SHOWN)),
                "max_tokens": _MAX_TOKENS,
                "temperature": 0.0,
            },
            category=str(number % 4),
            labels={"team": str(number % 3), "tier": str(number % 2)},
        )
        for number in range(count)
    ]


def alone_us(items: Sequence[WorkItem]) -> float:
    """CPU of the slices of a request by themselves, in microseconds; what is kept of a letter is warm."""
    for item in items:
        slices_of_body(item.body, item.labels)
    began = time.process_time()
    for item in items:
        slices_of_body(item.body, item.labels)
    return (time.process_time() - began) / len(items) * 1e6


def windows(name: str, target: Target, options: argparse.Namespace, reporter: Reporter) -> Iterator[Reading]:
    """Measure every pair of windows at both loads, which alternate."""
    for pair in range(options.pairs):
        for level in LEVELS:
            each = max(8, options.requests * level)
            items = prompts(name, each + level, options.seed + pair)
            found = []
            for sliced in (True, False) if pair % 2 == 0 else (False, True):
                # A prefix cache for each window: the second would else find the first one's prompts.
                own = [salted(item, f"{pair} {level} {sliced}") for item in items]
                found.append(_window(name, target, level, pair, own, sliced))
                yield found[-1]
            with_them, without = sorted(found, key=lambda one: not one.sliced)
            reporter.say(
                f"   {name}, c={level}, pair {pair + 1} of {options.pairs}: OTPS {with_them.otps:,.1f} with"
                f" slices, {without.otps:,.1f} without; load {with_them.load:.1f}"
            )


def _window(
    name: str, target: Target, level: int, pair: int, items: Sequence[WorkItem], sliced: bool
) -> Reading:
    settings = LoadOptions(requests=len(items) - level, warm_up_requests=level, block=pair, slices=sliced)
    load = Load("closed", concurrency=level)
    run = run_quietly(lambda: drive_load(target, load, items, options=settings))
    point = make_point(run)
    return Reading(
        name,
        level,
        pair,
        sliced,
        otps=point.otps,
        requests=point.requests,
        errors=sum(point.errors.values()),
        cpu_us_per_request=run.usage.cpu_s / max(point.requests, 1) * 1e6,
        load=provenance.load_now(),
    )


@contextmanager
def _target(name: str, reporter: Reporter) -> Iterator[Target]:
    if name == PACED:
        with server("tests.bench.scheduled_server", _GAP_MS) as url:
            yield HttpTarget(url)
        return
    with LocalStack(reporter.say) as stack:
        (endpoint,) = stack.deploy({"p-eagle": spec_of("p-eagle")}).values()
        yield make_target(stack.session, describe_endpoint(stack.session, endpoint.name).arm)
        stack.delete_all()


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure all, print the page and write it."""
    readings: list[Reading] = []
    before = provenance.load_now()
    alone = alone_us(prompts(PACED, _TIMED, options.seed))
    text = ""
    for name in options.servers.split(","):
        with reporter.phase(name), _target(name, reporter) as target:
            readings += windows(name, target, options, reporter)
        text = page(
            readings,
            alone_us=alone,
            origin=provenance.origin(seed=options.seed),
            load=(before, provenance.load_now()),
            command=shlex.join(["scripts/bench-slicing", *sys.argv[1:]]),
        )
        options.page.write_text(text, encoding="utf-8")  # after each server, so that Ctrl-C keeps the first
    print(text)
    return 0


def main() -> int:
    """Be a command."""
    options = arguments()
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    raise SystemExit(main())
