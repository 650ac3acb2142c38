"""Recorded traffic, read back: a file, a folder, or an S3 prefix, line by line.

Damage is not an error: a writer may have been killed, and a prefix may be half written. What cannot be read
is left out, counted, and named in the notes. Files of SageMaker's data capture may be below the same prefix.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import listed_objects, read_range, split_uri
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.records import TrafficRecord, from_line

SUFFIXES = (".jsonl", ".jsonl.gz")
WORK_FOLDER = ".peagle-learn"
"""Folder beside learn.yaml with answers and state of `learn`; nothing in it is traffic."""
_GZIP = b"\x1f\x8b"
_MOST_BYTES = 4 * 1024**3  #: below one prefix; more does not fit into memory


@dataclass(frozen=True)
class RecordedLine:
    """One line of a file: its place, its bytes, and its JSON object."""

    where: str
    raw: bytes
    value: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedLines:
    """All readable lines of some files; ``notes`` say what could not be read."""

    origin: str
    lines: tuple[RecordedLine, ...]
    files: int
    sha256: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Traffic:
    """Recorded requests in the order of the files; ``notes`` say what could not be read."""

    origin: str
    records: tuple[TrafficRecord, ...]
    notes: tuple[str, ...]


def read(target: str | Path, session: Session | Callable[[], Session] | None = None) -> Traffic:
    """Read all records of a file, a folder or an ``s3://`` prefix; a repeated id counts once.

    ``session``, or what opens one, is for S3; records on disk need none.

    Raises:
        SpecError: no file exists, or no line is a record.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    recorded = read_lines(target, session if session is None or callable(session) else lambda: session)
    records: dict[str, TrafficRecord] = {}
    damage = Damage()
    for line in recorded.lines:
        try:
            record = from_line(line.raw)
        except ValueError as error:
            damage.add(f"{line.where}: {error}")
        else:
            records.setdefault(record.id, record)
    notes = (*recorded.notes, *damage.notes("line is not recorded traffic", "lines are not recorded traffic"))
    if not records:
        raise SpecError(
            f"{recorded.origin} has no recorded traffic" + "".join(f"; {note}" for note in notes),
            next_step="record some with `peagle-sm serve NAME --record FILE`",
        )
    return Traffic(recorded.origin, tuple(records.values()), notes)


class Damage:
    """Counter of what could not be read; only the first place is kept."""

    def __init__(self) -> None:
        """Start without any."""
        self.count = 0
        self.first = ""

    def add(self, what: str) -> None:
        """Count one."""
        self.first = self.first or what
        self.count += 1

    def notes(self, one: str, several: str) -> tuple[str, ...]:
        """Return the note for people, for one or for several; none without damage."""
        if self.count == 1:
            return (f"1 {one} and was left out: {self.first}",)
        return (f"{self.count:,} {several} and were left out; the first: {self.first}",) if self.count else ()


def read_lines(target: str | Path, session: Callable[[], Session] | None = None) -> RecordedLines:
    """Read the JSON lines of a file, a folder or an ``s3://`` prefix, as far as they are readable.

    ``session`` opens the session, if they are in S3.

    Raises:
        SpecError: there is no file, or too much of it.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    files = files_of(target, session)
    lines: list[RecordedLine] = []
    damage, digest = Damage(), hashlib.sha256()
    for file in files:
        content = file.load()
        digest.update(hashlib.sha256(content).digest())
        lines += _lines_of(file.where, content, damage)
    why = "cannot be read (a writer may have been stopped, or still writes)"
    notes = damage.notes(f"place {why}", f"places {why}")
    return RecordedLines(str(target), tuple(lines), len(files), digest.hexdigest(), notes)


def first_line(path: Path) -> RecordedLine | None:
    """Return the first readable line of a file, without reading the rest; None if there is none."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as lines:
            for raw in lines:
                first = next(_lines_of(str(path), raw, Damage()), None)
                if first is not None:
                    return first
    except (OSError, EOFError, zlib.error):
        pass
    return None


@dataclass(frozen=True)
class RecordedFile:
    """A file that the reader opens: its path below the target or key, its whole address, and its content.

    ``version`` changes with the content; None: only the content itself says so.
    """

    name: str
    where: str
    load: Callable[[], bytes]
    version: str | None = None


def files_of(target: str | Path, session: Callable[[], Session] | None = None) -> list[RecordedFile]:
    """List the files that `read_lines` opens, in its order; nothing is read.

    Raises:
        SpecError: there is no file, or too much of it.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    name = str(target)
    return _in_s3(name, session) if name.startswith("s3://") else _on_disk(Path(target))


def _on_disk(path: Path) -> list[RecordedFile]:
    if not path.is_dir():
        return [RecordedFile(path.name, str(path), lambda: _file_content(path))]
    below = {each: each.relative_to(path) for each in sorted(path.rglob("*"))}
    files = [
        RecordedFile(str(name), str(each), lambda each=each: _file_content(each))  # type: ignore[misc]
        for each, name in below.items()
        if each.is_file() and each.name.endswith(SUFFIXES) and WORK_FOLDER not in name.parts
    ]
    if not files:
        raise SpecError(
            f"{path} has no capture files ({' or '.join(SUFFIXES)})",
            next_step="give the folder or the file that was recorded",
        )
    return files


def _file_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"file {path} not found", next_step="check the path") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error}", next_step="check the file") from error


def _in_s3(uri: str, open_session: Callable[[], Session] | None) -> list[RecordedFile]:
    if open_session is None:
        raise SpecError(
            f"{uri} is in S3, and no AWS session was given", next_step="give session=… to the call"
        )
    session = open_session()
    bucket, prefix = split_uri(uri)
    rows: list[tuple[str, int, str]] = []
    if prefix.endswith(SUFFIXES):  # one object; a listing of its whole key would leave it out
        rows = [row for row in _listed(session, bucket, prefix[:-1]) if row[0] == prefix]
    if not rows:
        folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"  # traffic is not traffic-2
        rows = [row for row in _listed(session, bucket, folder) if row[0].endswith(SUFFIXES)]
    if not rows:
        raise SpecError(
            f"no objects ending with {' or '.join(SUFFIXES)} exist below {uri}",
            next_step=f"list them with aws s3 ls --recursive {uri}",
        )
    total = sum(size for _, size, _ in rows)
    if total > _MOST_BYTES:
        raise SpecError(
            f"{uri} has {total / 1e9:,.1f} GB; allowed: {_MOST_BYTES / 1e9:,.1f} GB at once",
            next_step="give a longer prefix, for example one day's: …/ENDPOINT/2026/11/24/",
        )

    def load(key: str, size: int) -> bytes:
        return read_range(session, bucket, key, 0, size) if size else b""

    return [
        RecordedFile(key, f"s3://{bucket}/{key}", lambda key=key, size=size: load(key, size), f"{size} {tag}")  # type: ignore[misc]
        for key, size, tag in rows
    ]


def _listed(session: Session, bucket: str, prefix: str) -> list[tuple[str, int, str]]:
    """Return key, size and ETag of the objects below a prefix, by key."""
    rows = sorted(listed_objects(session, bucket, prefix))
    return [(prefix + name, size, tag) for name, size, tag in rows]


def _lines_of(where: str, content: bytes, damage: Damage) -> Iterator[RecordedLine]:
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            damage.add(f"{where}: the compressed file ends early or is damaged")
            return
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            damage.add(f"{where}, line {number}: not a whole JSON line")
            continue
        if isinstance(value, dict):
            yield RecordedLine(f"{where}, line {number}", raw, value)
        else:
            damage.add(f"{where}, line {number}: found {type(value).__name__}, expected a JSON object")
