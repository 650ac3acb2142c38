"""The program of a preparation job: ``python -m peagle_learn.processing.job read`` or ``split``.

It runs in the image of `container/Dockerfile.prepare`, and the local SageMaker runs it as a process for each
instance. SageMaker lays the inputs below ``/opt/ml/processing/input``, and writes the instance's name to
``/opt/ml/config/resourceconfig.json``. Nothing is fetched: the job has no network.

``read`` redacts the instance's share of the files. ``split`` joins the lines of all instances and does what
the local step does: compares them with the target, leaves out repeats and near-duplicates, and splits. A file
of one instance is compared with all others there, so sharding changes nothing of the rule that no held-out
prompt has a relative in training.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from peagle_bench.workloads import load_workload
from peagle_bench.workloads.prompt_files import read_bytes
from peagle_bench.workloads.recorded import begins_as_record
from peagle_learn.core.conversations import split_prompts
from peagle_learn.core.processing.lines import (
    GENERAL,
    MANIFEST_FILE,
    PROMPTS,
    SCHEMA,
    ReadLine,
    collected,
    read_line,
    split_files,
)
from peagle_learn.core.processing.requests import INPUT, OUTPUT, SETTINGS, SETTINGS_FILE
from peagle_learn.core.prompts import TargetTexts, is_token_ids, refuse_unfit
from peagle_learn.prompts import clean_id, clean_prompt
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.traffic.reading import SUFFIXES
from peagle_sm.traffic.redaction import Redactor

ROOT_VARIABLE = "PEAGLE_ML_ROOT"
"""Another folder for /opt/ml, where several instances are one machine."""
MARK = "peagle-prepare"
DONE, FAILED, MISTAKEN = 0, 1, 2
USAGE = "usage: python -m peagle_learn.processing.job read|split"
_LONGEST_MESSAGE = 1000  #: SageMaker keeps 1 KB of all instances together
_MOST_PROCESSES = 32
_WORTH_PROCESSES = 1_000_000  #: bytes; less is read before the processes have started


@dataclass(frozen=True)
class Folders:
    """An instance's folders: below /opt/ml, or below another root."""

    root: Path

    def at(self, path: str) -> Path:
        """Return the place of a path of the container."""
        return self.root / path.removeprefix("/opt/ml/")

    def document(self, name: str) -> Mapping[str, Any]:
        """Read one of SageMaker's two files."""
        found: dict[str, Any] = json.loads((self.root / "config" / name).read_text(encoding="utf-8"))
        return found

    def message(self, text: str) -> None:
        """Leave a text that DescribeProcessingJob shows; it has no text of a prompt, and no secret."""
        with suppress(OSError):
            (self.root / "output").mkdir(parents=True, exist_ok=True)
            short = Redactor().text(text).encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
            (self.root / "output" / "message").write_text(short, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run one of the two jobs; return the exit status: 0, 2 for a mistake in what was given, 1 otherwise."""
    if list(arguments) not in (["read"], ["split"]):
        print(f"{USAGE}; found {' '.join(arguments) or 'nothing'}", file=sys.stderr)
        return MISTAKEN
    folders = Folders(Path(os.environ.get(ROOT_VARIABLE) or "/opt/ml"))
    try:
        said = read(folders) if arguments[0] == "read" else split(folders)
    except PeagleError as error:
        return _failed(folders, MISTAKEN, f"{error.message}. {error.next_step or ''}".strip())
    except Exception as error:
        traceback.print_exc()
        return _failed(folders, FAILED, f"{type(error).__name__}; the job's log has the cause")
    folders.message(f"{said}\n")
    print(f"{MARK} done {said}", flush=True)
    return DONE


def _failed(folders: Folders, status: int, reason: str) -> int:
    print(f"error: {Redactor().text(reason)}", file=sys.stderr, flush=True)
    folders.message(f"{reason}\n")
    return status


def _settings(folders: Folders) -> Mapping[str, Any]:
    path = folders.at(f"{INPUT}/{SETTINGS}") / SETTINGS_FILE
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found.get("schema") != SCHEMA:
        raise SpecError(
            f"the image has {SCHEMA}, the settings are of {found.get('schema')}",
            next_step="Build the image from this version of peagle-sm.",
        )
    return found


@dataclass(frozen=True)
class FileTask:
    """One file of this instance's share: its set, its place among the sources, and where it is."""

    of: str
    number: int
    begins: str  #: of the ids, as in the local step
    path: Path
    key: str
    max_tokens: int


@dataclass(frozen=True)
class FileLines:
    """The redacted lines of a file."""

    lines: tuple[tuple[str, str], ...]  #: (id, line)
    redacted: Mapping[str, int]
    token_ids: int
    size: int
    notes: tuple[str, ...]


def read(folders: Folders) -> str:
    """Redact this instance's share, file by file, and write it with a report; return a summary.

    Raises:
        SpecError: a file of request bodies has a damaged line; the message has its place.
    """
    settings, resources = _settings(folders), folders.document("resourceconfig.json")
    host = str(resources["current_host"])
    tasks = list(_tasks(folders, settings))
    total = sum(task.path.stat().st_size for task in tasks)
    output = folders.at(OUTPUT)
    output.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    redacted: Counter[str] = Counter()
    notes: list[str] = []
    prompts = token_ids = size = 0
    began = monotonic()
    with (output / f"lines-{host}.jsonl").open("w", encoding="utf-8", errors="replace") as file:
        for done, part in enumerate(_read_all(tasks, total), start=1):
            for name, line in part.lines:
                if name not in seen:  # a retry; repeats of other requests are the second job's
                    seen.add(name)
                    file.write(line + "\n")
                    prompts += 1
            redacted.update(part.redacted)
            token_ids, size = token_ids + part.token_ids, size + part.size
            notes += part.notes
            left = (total - size) * (monotonic() - began) / size if size else 0.0
            print(
                f"{MARK} read host={host} files={done}/{len(tasks)} prompts={prompts} "
                f"bytes={size}/{total} seconds_left={left:.0f}",
                flush=True,
            )
    report = {
        "schema": SCHEMA,
        "hosts": resources["hosts"],
        "prompts": prompts,
        "token_ids": token_ids,
        "redacted": dict(redacted),
        "notes": notes,
    }
    (output / f"report-{host}.json").write_text(json.dumps(report), encoding="utf-8")
    return f"{host}: {prompts:,} prompts of {len(tasks):,} files"


def _tasks(folders: Folders, settings: Mapping[str, Any]) -> Iterator[FileTask]:
    for of in (PROMPTS, GENERAL):
        prefix = "general/" if of == GENERAL else ""
        for number in range(1, settings[of] + 1):
            top = folders.at(f"{INPUT}/{of}-{number}")
            begins = prefix + (f"{number}/" if settings[of] > 1 else "")
            found = sorted(
                (path.relative_to(top).as_posix(), path)
                for path in (top.rglob("*") if top.is_dir() else ())
                if path.is_file() and path.name.endswith(SUFFIXES)
            )
            for key, path in found:
                yield FileTask(of, number, begins, path, key, settings["max_tokens"])


def _read_all(tasks: Sequence[FileTask], total: int) -> Iterator[FileLines]:
    processes = min(len(tasks), len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if processes < 2 or total < _WORTH_PROCESSES:
        yield from map(read_file, tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(read_file, tasks)


def read_file(task: FileTask) -> FileLines:
    """Redact one file; recorded traffic without a usable request is a note, as an empty file is.

    Raises:
        SpecError: it has request bodies, and a line is damaged.
    """
    size, redactor = task.path.stat().st_size, Redactor()
    recorded = begins_as_record(task.path)
    if not recorded and not read_bytes(task.path).strip():
        return FileLines((), {}, 0, size, (f"{task.key} is empty",))
    try:
        loaded = load_workload(str(task.path), default_max_tokens=None, related=False)
    except SpecError as error:
        said = error.message.replace(str(task.path), task.key)
        if recorded:
            return FileLines((), {}, 0, size, (said,))
        raise SpecError(said, next_step=error.next_step) from None
    lines, token_ids = [], 0
    for position, item in enumerate(loaded.items):
        own = clean_id(item.prompt_id, position, redactor)
        if not recorded or own != item.prompt_id:  # else it is unique, and the same in a retry
            own = f"{task.key}/{own}"
        name = task.begins + own
        prompt, _ = clean_prompt(item, name, redactor, task.max_tokens)
        if is_token_ids(prompt):
            token_ids += 1
            continue
        line = ReadLine(task.of, (task.number, task.key, position), prompt)
        lines.append((name, line.to_json()))
    notes = tuple(note.replace(str(task.path), task.key) for note in loaded.notes)
    return FileLines(tuple(lines), dict(redactor.counts), token_ids, size, notes)


def split(folders: Folders) -> str:
    """Split the lines of all instances as the local step does; return a summary.

    Raises:
        SpecError: an instance's part is missing, or the prompts do not fit the target, or are too few.
    """
    settings, lines = _settings(folders), folders.at(f"{INPUT}/lines")
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(lines.rglob("report-*.json"))]
    hosts = sorted({host for report in reports for host in report["hosts"]})
    missing = [host for host in hosts if not (lines / f"lines-{host}.jsonl").is_file()]
    if not reports or missing:
        raise SpecError(
            f"the first job left no part of {', '.join(missing) or 'any instance'}",
            next_step="Delete what it left with `peagle-sm learn delete-data`, and run the command again.",
        )
    found = collected(_lines(lines, hosts))
    print(f"{MARK} split prompts={len(found.prompts)} general={len(found.general)}", flush=True)
    target = settings["target"]
    tokens = target["control_tokens"]
    texts = TargetTexts(
        target["has_template"], None if tokens is None else frozenset(tokens), target["vocab_size"]
    )
    token_ids = sum(report["token_ids"] for report in reports)
    if not found.prompts and token_ids:
        raise SpecError(
            f"data.prompts: all {token_ids:,} prompts are token ids, in which secrets cannot be found",
            next_step="Give the prompts as text or as messages.",
        )
    refuse_unfit(found.prompts, texts, "data.prompts")
    if settings["general"]:
        refuse_unfit(found.general, texts, "data.general")
    chosen = ("held_out", "general_trained", "limit", "seed")
    divided = split_prompts(found.prompts, found.general, **{name: settings[name] for name in chosen})
    files = split_files(divided)
    redacted: Counter[str] = Counter()
    for report in reports:
        redacted.update(report["redacted"])
    manifest = {
        "schema": SCHEMA,
        "sources": settings["sources"],
        "instances": len(hosts),
        "prompts": len(found.prompts),
        "repeats": divided.repeats,
        "near_repeats": divided.near_repeats,
        "like_general": divided.like_general,
        "token_ids": token_ids,
        "redacted": dict(redacted),
        "notes": [*(note for report in reports for note in report["notes"]), *found.notes],
        "files": {
            name: {"sha256": sha256(content).hexdigest(), "size": len(content)}
            for name, content in files.items()
        },
    }
    output = folders.at(OUTPUT)
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (output / name).write_bytes(content)
    (output / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return f"{len(divided.train):,} conversations to train with, {len(divided.held_out):,} held out"


def _lines(folder: Path, hosts: Sequence[str]) -> Iterator[Any]:
    for host in hosts:
        with (folder / f"lines-{host}.jsonl").open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield read_line(line, f"lines-{host}.jsonl, line {number}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
