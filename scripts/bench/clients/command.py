"""Load clients side by side: ours, `vllm bench serve` and AIPerf against a server that knows what it sent.

``scripts/bench-clients`` runs it and writes docs/reference/clients-bench.md. Every client gets a fresh
server and the same load; the order rotates from round to round, so that what the machine does
befalls all of them alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from peagle_bench.compare.alternating import turn_order
from peagle_bench.results import provenance
from scripts.bench.clients.page import page
from scripts.bench.clients.run import Bench, Reading
from scripts.bench.job import run_job
from scripts.bench.progress import Reporter

CONCURRENCIES = (1, 16, 64, 128)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-clients", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each client at each load (default 3)")
    parser.add_argument("--clients", default="", help="only these, by their names in the page, with commas")
    parser.add_argument("--concurrency", default="", help="only these, with commas (default 1,16,64,128)")
    parser.add_argument("--gap-ms", type=float, default=10.0, help="a step of the server (default 10)")
    parser.add_argument("--server", default="tests.bench.scheduled_server", help="its module")
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/clients-bench.md"), help="the page to write"
    )
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Measure all, print the page and write it."""
    concurrencies = [int(word) for word in options.concurrency.split(",") if word] or list(CONCURRENCIES)
    wanted = [word.strip() for word in options.clients.split(",") if word.strip()]
    bench = Bench(options.server, options.gap_ms, reporter.say, wanted)
    readings: list[Reading] = []
    floors: dict[int, list[float]] = {}
    text = ""
    before = provenance.load_now()

    def write() -> str:
        text = page(
            readings,
            floors=floors,
            versions=bench.versions,
            machine=provenance.machine(),
            load=(before, provenance.load_now()),
            gap_ms=options.gap_ms,
            command="scripts/bench-clients " + " ".join(sys.argv[1:]),
        )
        options.page.write_text(text, encoding="utf-8")
        return text

    with reporter.phase("clients"):
        for turn in range(options.rounds):
            for concurrency in concurrencies:
                floors.setdefault(concurrency, []).append(bench.floor_us(concurrency))
                for name in turn_order(bench.names, turn):
                    reading = bench.read(name, concurrency)
                    reporter.say(f"   c={concurrency} {reading.line}")
                    readings.append(reading)
            text = write()  # after each round, so that Ctrl-C keeps those that are whole
    print(text)
    return 0


def main() -> int:
    """Be a command."""
    options = arguments()
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    raise SystemExit(main())
