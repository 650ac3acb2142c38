"""The tutorial "Train a head for your model" as one command: files, endpoint, data, training, proof.

It runs the commands of docs/tutorials/train-a-head.md one after the other and shows each. Every one of them
continues where it was stopped, so this does, too: run it again with the same folder. At its end, figures.json
in the folder has what was measured; with --record it becomes the record that docs/reference/learning-gain.md
is written from.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_bench.results import provenance
from peagle_sm.aws.files import write_file
from peagle_sm.core.errors import Interrupted, NotOffered, PeagleError
from peagle_sm.core.words import elapsed
from scripts.bench import house_style
from scripts.bench.learn_record import RECORD, ROOT, read_record, read_run
from scripts.bench.progress import seconds_left

SPENT = "seconds.json"  #: in the folder: seconds of each stage so far, and how often the program was started
FIGURES = "figures.json"
_LOCAL = ("--local", "--yes")


@dataclass(frozen=True)
class Stage:
    """One command of the tutorial; ``seconds`` are an estimate for two cores, until a run is recorded."""

    name: str
    title: str
    words: tuple[str, ...]
    seconds: float


STAGES = (
    Stage("server", "start the local SageMaker", ("local", "up", "--detach"), 10),
    Stage("deploy", "deploy the endpoint", ("deploy", *_LOCAL), 40),
    Stage("data", "let the endpoint answer the prompts", ("learn", "run", "--until", "data", *_LOCAL), 390),
    Stage("train", "train the head on the answers", ("learn", "run", "--until", "train", *_LOCAL), 490),
    Stage("prove", "measure both heads in turns", ("learn", "run", "--until", "prove", *_LOCAL), 970),
)


@dataclass
class Spent:
    """Seconds of each stage in all sittings of a folder."""

    seconds: dict[str, float]
    sittings: int = 0

    @classmethod
    def read(cls, path: Path) -> Spent:
        """Read the file; a missing or damaged one begins anew, since only the clock depends on it."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                {str(name): float(each) for name, each in document["seconds"].items()},
                int(document["sittings"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls({})

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            CannotWrite: the operating system refuses.
        """
        write_file(path, json.dumps({"seconds": self.seconds, "sittings": self.sittings}) + "\n")


def expected(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the seconds of each stage: those of the recorded run, else the estimates."""
    recorded = {} if record is None else record["seconds"]
    return {stage.name: float(recorded.get(stage.name, stage.seconds)) for stage in STAGES}


def stages_left(whole: Mapping[str, float], spent: Mapping[str, float], current: str) -> float:
    """Estimate the seconds of a stage and all later ones, at the pace of the earlier ones.

    The pace counts from the data on: what is before it takes a minute, and depends on downloads.
    """
    names = list(whole)
    place = names.index(current)
    measured = [name for name in names[names.index("data") : place] if spent.get(name)]
    expected_s = [whole[name] for name in [*measured, *names[place:]]]
    return max(0.0, seconds_left(expected_s, [spent[name] for name in measured], spent.get(current, 0.0)))


def run_stages(
    folder: Path,
    run: Callable[[Sequence[str]], int],
    whole: Mapping[str, float],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run every stage until one fails, and write what each took; return the last exit code."""
    path = folder / SPENT
    spent = Spent.read(path)
    spent.sittings += 1
    for number, stage in enumerate(STAGES, start=1):
        left = stages_left(whole, spent.seconds, stage.name)
        say(f"\n== {number} of {len(STAGES)}: {stage.title}; about {elapsed(left)} left to the end")
        say(f"$ peagle-sm {' '.join(stage.words)}")
        began = clock()
        code = run(stage.words)
        spent.seconds[stage.name] = round(spent.seconds.get(stage.name, 0.0) + clock() - began, 1)
        spent.write(path)
        if code:
            return code
    return 0


class Program:
    """Runs peagle-sm in a folder. A stop ends the command, whose clean-up runs to its end, and this program.

    Ctrl-C reaches the command by itself; SIGTERM, which reaches this program alone, is passed on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._stops: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def __call__(self, words: Sequence[str]) -> int:
        """Run a command; return its exit code."""
        if self._stops:
            return Interrupted.exit_code
        with subprocess.Popen([sys.executable, "-m", "peagle_sm", *words], cwd=self._folder) as process:
            self._process = process
            code = process.wait()
        self._process = None
        return Interrupted.exit_code if self._stops else code

    def _stop(self, number: int, _: object) -> None:
        self._stops.append(number)
        if number == signal.SIGTERM and self._process is not None:
            self._process.terminate()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/learn-demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="where the files are written; an earlier run there continues"
    )
    parser.add_argument("--files-only", action="store_true", help="write the files and run nothing")
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"write the figures to {RECORD.relative_to(ROOT)}, too; use a new folder",
    )
    parser.add_argument("--note", default="", help="what else the machine did, as a sentence of the record")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Write the files, run the stages and show what is next; return the exit code."""
    options = arguments(words)
    folder: Path = options.folder

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        for path in house_style.write_missing(folder, house_style.files()):
            say(f"written: {path}")
        if options.files_only:
            return 0
        code = run_stages(folder, Program(folder), expected(read_record()), say)
        if code not in (0, NotOffered.exit_code):
            say(f"\nstopped (exit code {code}). It continues with: scripts/learn-demo {folder}")
            return code
        spent = Spent.read(folder / SPENT)
        origin = {**provenance.origin(0), "note": options.note}
        figures = read_run(folder, spent.seconds, spent.sittings, origin)
        text = json.dumps(figures, indent=1, sort_keys=True) + "\n"
        for target in (folder / FIGURES, *([RECORD] if options.record else [])):
            write_file(target, text)
            say(f"written: {target}")
    except PeagleError as error:
        say(f"error: {error}\nnext: {error.next_step}")
        return error.exit_code
    say(f"\nall stages took {elapsed(sum(spent.seconds.values()))}")
    if code == 0:
        say("next, in the folder: peagle-sm learn promote --local")
    say(f"clean up: peagle-sm delete {house_style.ENDPOINT_NAME} --local, then peagle-sm local down")
    return code


if __name__ == "__main__":
    sys.exit(main())
