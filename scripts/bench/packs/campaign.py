"""`scripts/bench-packs`: clean and faulty runs of the packs on the local engine, recorded with provenance.

The endpoints that the packs need come up once. Every run has another seed; a later call continues after the
seeds that the record has, so a campaign can run in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.packs import load_pack
from peagle_bench.packs.run import PackOptions, run_packs
from peagle_bench.results import provenance
from peagle_bench.results.records import PackRecord
from peagle_sm.aws.session import local_server
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import pack_dependencies
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack, Say
from scripts.bench.packs import scorecard
from scripts.bench.packs.arms import CLEAN, LOCAL_FAULTS, PLAIN, specs, write_files
from scripts.bench.packs.cases import CASES, Case, needed, speed_bench_file
from scripts.bench.packs.page import did_what_it_must, page
from scripts.bench.progress import Reporter

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "docs" / "reference" / "packs" / "runs.json"
_KEEP_EVERY_S = 60.0
PAGE = ROOT / "docs" / "reference" / "pack-runs.md"


@dataclass(frozen=True)
class PackRun:
    """One run of a pack on one arm; ``failed`` are the checks that failed, ``open`` those not decided.

    ``example`` is the first fault of the check that must fail; ``revision`` is the repository's.
    """

    pack: str
    arm: str
    seed: int
    result: str  #: "pass", "fail" or "not measured"
    failed: tuple[str, ...]
    open: tuple[str, ...]
    why: str
    figure: str
    requests: int
    seconds: float
    example: str
    day: str
    processor: str
    revision: str

    @classmethod
    def of(cls, record: PackRecord, arm: str, origin: Mapping[str, Any]) -> PackRun:
        """Make it from a row of the scorecard."""
        return cls(
            record.pack,
            arm,
            record.seed,
            {True: "pass", False: "fail", None: "not measured"}[record.passed],
            tuple(one.name for one in record.checks if one.passed is False),
            tuple(one.name for one in record.checks if one.undecided),
            record.why,
            record.figure,
            record.requests,
            round(record.seconds, 1),
            _example(record, CASES[record.pack].faults.get(arm)),
            origin["date"][:10],
            origin["machine"]["processor"],
            origin["git_revision"] or "",
        )


def _example(record: PackRecord, check: str | None) -> str:
    """Return the first fault that the check names which must find it."""
    return next((one.examples[0] for one in record.checks if one.name == check and one.examples), "")


class PackRuns:
    """Runs of packs on endpoints of a local SageMaker."""

    def __init__(self, stack: LocalStack, say: Say, folder: Path) -> None:
        self._stack, self._say, self._folder = stack, say, folder
        self._origin = provenance.origin(seed=0)

    def run(self, case: Case, arm: str, seed: int) -> PackRun:
        """Run a case on an arm beside the plain one; ``arm`` may name a fault of the data."""
        endpoint = case.endpoint(arm)
        described = [describe_endpoint(self._stack.session, name) for name in (PLAIN, endpoint)]
        file = None
        if load_pack(case.pack).takes_file:
            hidden = 0 if arm == CLEAN else 494
            rows = self._folder / f"rows-{arm}-{seed}.jsonl"  # its own: other runs share the folder
            file = str(speed_bench_file(rows, placeholders=hidden, seed=seed))
        options = PackOptions(seed, case.units, case.context, file)
        out = self._folder / f"{case.pack}-{arm}-{seed}.jsonl"
        pack = load_pack(case.pack)
        around = pack_dependencies(self._stack, described, seed, lambda line: None)
        with self._fault(endpoint, LOCAL_FAULTS.get(arm)):
            found = run_packs([nullcontext(described)], [pack], out, options, around)
        out.unlink()
        (record,) = found.results.packs
        return PackRun.of(record, arm, self._origin)

    @contextmanager
    def _fault(self, endpoint: str, fault: Mapping[str, Any] | None) -> Iterator[None]:
        """Set a fault of the local SageMaker on an endpoint during a run."""
        if fault is None:
            yield
            return
        port = self._stack.port
        added = local_server.add_fault(port, local_server.fault_of({**fault, "endpoint": endpoint}))
        try:
            yield
        finally:
            local_server.clear_faults(port, [added["id"]])


def missing(runs: Sequence[PackRun], pack: str, arm: str, seeds: range) -> list[int]:
    """Return the seeds of a pack and arm that have not run yet."""
    done = {one.seed for one in runs if (one.pack, one.arm) == (pack, arm)}
    return [seed for seed in seeds if seed not in done]


def work_left(
    runs: Sequence[PackRun], packs: Sequence[str], clean: int, faulty: int, first: int = 0
) -> list[tuple[str, str, int]]:
    """Return the runs to do, all packs in turns, so that a part of a campaign has some of each."""
    left = [
        (seed, pack, arm)
        for pack in packs
        for arm, wanted in ((CLEAN, clean), *((fault, faulty) for fault in CASES[pack].faults))
        for seed in missing(runs, pack, arm, range(first, wanted))
    ]
    return [(pack, arm, seed) for seed, pack, arm in sorted(left)]


def read_runs(path: Path) -> list[PackRun]:
    """Read the runs of earlier calls."""
    if not path.is_file():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return [PackRun(**{**row, "failed": tuple(row["failed"]), "open": tuple(row["open"])}) for row in rows]


def run_all(
    each: PackRuns,
    runs: list[PackRun],
    work: Sequence[tuple[str, str, int]],
    say: Say,
    ended: Callable[[], bool],
    keep: Callable[[], None],
    together: int = 1,
) -> None:
    """Add the runs of the work to ``runs``, until it is done or the time is over; ``keep`` saves them.

    ``together`` runs share the engines at a time; those that need the engines to themselves follow.
    """
    left = len(work)
    turn, kept = threading.Lock(), time.monotonic()

    def one(pack: str, arm: str, seed: int) -> None:
        nonlocal left, kept
        if ended():
            return
        found = each.run(CASES[pack], arm, seed)
        with turn:
            runs.append(found)
            left -= 1
            if time.monotonic() - kept >= _KEEP_EVERY_S:
                keep()
                kept = time.monotonic()
        say(f"   {left} left: {pack} on {arm}, seed {seed}: {found.result}, {found.seconds} s")
        if not did_what_it_must(asdict(found)):
            say(f"      not as it must be: {found.why}")

    apart = [row for row in work if CASES[row[0]].apart or row[1] in LOCAL_FAULTS]
    shared = [row for row in work if row not in apart]
    for rows, workers in ((shared, together), (apart, 1)):
        with ThreadPoolExecutor(workers) as pool:
            started = [pool.submit(one, *row) for row in rows]
            try:
                for future in started:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    if left:
        say(f"   time is over: {left} runs are left for the next call")


def joined(runs: Sequence[PackRun], others: Sequence[PackRun]) -> list[PackRun]:
    """Return the runs of both records; of two runs with one pack, arm and seed the first."""
    known = {(one.pack, one.arm, one.seed) for one in runs}
    return [*runs, *(one for one in others if (one.pack, one.arm, one.seed) not in known)]


def join(path: Path) -> int:
    """Add the runs of another record to ours, and write the page."""
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    document["runs"] = [asdict(one) for one in joined(read_runs(RECORD), read_runs(path))]
    write_json(RECORD, document)
    PAGE.write_text(page(document), encoding="utf-8")
    return 0


def write(runs: Sequence[PackRun], stack: LocalStack) -> None:
    """Write the record and its page."""
    whole = provenance.collect(
        seed=0,
        engine=[provenance.engine_in_brief(row) for row in stack.engines()],
        spec_hashes={},
        weights=weights_dir(),
    )
    document = {"provenance": whole, "runs": [asdict(one) for one in runs]}
    write_json(RECORD, document)
    PAGE.write_text(page(document), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 if a clean run did not pass or a fault was not found."""
    parser = argparse.ArgumentParser(prog="scripts/bench-packs", description=__doc__)
    parser.add_argument("--clean", type=int, default=200, help="clean runs of each pack, all calls together")
    parser.add_argument("--faulty", type=int, default=5, help="runs of each pack on each of its faults")
    parser.add_argument("--packs", default=",".join(CASES), help="packs to run")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after this time; the rest is left")
    parser.add_argument("--together", type=int, default=1, help="runs that share the engines at a time")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="for two campaigns side by side, each bound to a core"
    )
    parser.add_argument("--join", type=Path, help="only add the runs of another record, made elsewhere")
    parser.add_argument("--scorecard", action="store_true", help="only the scorecard of a sound endpoint")
    given = parser.parse_args(arguments)
    if given.join is not None:
        return join(given.join)
    packs = given.packs.split(",")

    def only_scorecard(reporter: Reporter) -> int:
        with tempfile.TemporaryDirectory() as folder, LocalStack(reporter.say) as stack:
            every = specs(write_files(Path(folder)))
            stack.deploy({name: every[name] for name in (PLAIN, CLEAN)}, together=False)
            with reporter.phase("scorecard"):
                scorecard.measure(stack, Path(folder), reporter.say)
            stack.delete_all()
        return 0

    def job(reporter: Reporter) -> int:
        runs = read_runs(RECORD)
        work = work_left(runs, packs, given.clean, given.faulty, given.first_seed)
        reporter.say(f"{len(runs)} runs recorded, {len(work)} to do")
        with tempfile.TemporaryDirectory() as folder, LocalStack(reporter.say) as stack:
            plugin = Path(folder) / "plugin"
            plugin.mkdir()
            with reporter.phase("deploy"):
                every, wanted = specs(write_files(plugin)), needed((pack, arm) for pack, arm, _ in work)
                stack.deploy({name: every[name] for name in every if name in wanted}, together=False)
            end = time.monotonic() + 60 * given.minutes

            def over() -> bool:
                return bool(time.monotonic() > end)

            with reporter.phase("runs"):
                each = PackRuns(stack, reporter.say, Path(folder))
                keep = partial(write, runs, stack)
                try:
                    run_all(each, runs, work, reporter.say, over, keep, given.together)
                finally:
                    keep()
            stack.delete_all()
        bad = [one for one in runs if not did_what_it_must(asdict(one))]
        for one in bad:
            reporter.say(f"not as it must be: {one}")
        return 1 if bad else 0

    return run_job(only_scorecard if given.scorecard else job)


if __name__ == "__main__":
    sys.exit(main())
