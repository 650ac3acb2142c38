"""Recorded traffic, read back: a file, a folder, or an S3 prefix, line by line; encrypted lines decrypted.

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
from peagle_sm.aws.storage.s3 import list_sizes, read_range, split_uri
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.decryption import Decryption, KmsKeyRefused
from peagle_sm.traffic.encrypted_lines import EncryptedLine, is_encrypted
from peagle_sm.traffic.records import TrafficRecord, from_line

SUFFIXES = (".jsonl", ".jsonl.gz")
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

    ``session``, or what opens one, is for S3 and for encrypted records, which need kms:Decrypt on their KMS
    key. Plain records on disk need none.

    Raises:
        SpecError: there is no file, or no line of them is a record.
        NotFound, CredentialsError, ServiceFault: S3 or KMS refuses, or does not answer.
    """
    found = read_lines(target, session if session is None or callable(session) else lambda: session)
    records: dict[str, TrafficRecord] = {}
    damage = Damage()
    for line in found.lines:
        try:
            record = from_line(line.raw)
        except ValueError as error:
            damage.add(f"{line.where}: {error}")
        else:
            records.setdefault(record.id, record)
    notes = (*found.notes, *damage.notes("line is not recorded traffic", "lines are not recorded traffic"))
    if not records:
        raise SpecError(
            f"{found.origin} has no recorded traffic" + "".join(f"; {note}" for note in notes),
            next_step="record some with `peagle-sm serve NAME --record FILE`",
        )
    return Traffic(found.origin, tuple(records.values()), notes)


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

    ``session`` opens the session, if something is in S3 or encrypted.

    Raises:
        SpecError: there is no file, or too much of it.
        NotFound, CredentialsError, ServiceFault: S3 or KMS refuses, or does not answer.
    """
    name = str(target)
    files = _in_s3(name, session) if name.startswith("s3://") else _on_disk(Path(target))
    lines: list[RecordedLine] = []
    damage, digest, decryption = Damage(), hashlib.sha256(), Decryption(session)
    for where, load in files:
        content = load()
        digest.update(hashlib.sha256(content).digest())
        lines += _decrypted(where, _lines_of(where, content, damage), decryption, damage)
    refusal = decryption.refusal()
    if refusal is not None and not lines:
        raise refusal
    why = "cannot be read (a writer may have been stopped, or still writes)"
    notes = damage.notes(f"place {why}", f"places {why}")
    return RecordedLines(name, tuple(lines), len(files), digest.hexdigest(), (*notes, *decryption.notes()))


def first_line(path: Path) -> RecordedLine | None:
    """Return the first readable line of a file, without reading the rest; None if there is none.

    An encrypted line is returned as it is.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as lines:
            for raw in lines:
                found = next(_lines_of(str(path), raw, Damage()), None)
                if found is not None:
                    return found
    except (OSError, EOFError, zlib.error):
        pass
    return None


_File = tuple[str, Callable[[], bytes]]


def _on_disk(path: Path) -> list[_File]:
    if path.is_dir():
        paths = sorted(each for each in path.rglob("*") if each.is_file() and each.name.endswith(SUFFIXES))
        if not paths:
            raise SpecError(
                f"{path} has no capture files ({' or '.join(SUFFIXES)})",
                next_step="give the folder or the file that was recorded",
            )
    else:
        paths = [path]
    return [(str(each), lambda each=each: _file_content(each)) for each in paths]  # type: ignore[misc]


def _file_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"file {path} not found", next_step="check the path") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error}", next_step="check the file") from error


def _in_s3(uri: str, open_session: Callable[[], Session] | None) -> list[_File]:
    if open_session is None:
        raise SpecError(
            f"{uri} is in S3, and no AWS session was given", next_step="give session=… to the call"
        )
    session = open_session()
    bucket, prefix = split_uri(uri)
    if prefix and not prefix.endswith(("/", *SUFFIXES)):
        prefix += "/"  # traffic is not traffic-2
    sizes = {
        prefix + name: size
        for name, size in sorted(list_sizes(session, bucket, prefix).items())
        if (prefix + name).endswith(SUFFIXES)
    }
    # A single object's key is the whole prefix, which `list_sizes` leaves out as a folder's own marker.
    if not sizes and prefix.endswith(SUFFIXES):
        sizes = {prefix: 1 << 40}
    if not sizes:
        raise SpecError(
            f"no objects ending with {' or '.join(SUFFIXES)} exist below {uri}",
            next_step=f"list them with aws s3 ls --recursive {uri}; records arrive about a minute after their"
            " requests",
        )
    total = sum(size for size in sizes.values() if size < 1 << 40)
    if total > _MOST_BYTES:
        raise SpecError(
            f"{uri} has {total / 1e9:,.1f} GB; allowed: {_MOST_BYTES / 1e9:,.1f} GB at once",
            next_step="give a longer prefix, for example one day's: …/ENDPOINT/2026/11/24/",
        )

    def load(key: str, size: int) -> bytes:
        return read_range(session, bucket, key, 0, size) if size else b""

    return [
        (f"s3://{bucket}/{key}", lambda key=key, size=size: load(key, size))  # type: ignore[misc]
        for key, size in sizes.items()
    ]


def _lines_of(where: str, content: bytes, damage: Damage) -> Iterator[RecordedLine]:
    if content.startswith(_GZIP):
        content, is_whole = _unpacked(content)
        if not is_whole:
            damage.add(f"{where}: the compressed file ends early or is damaged")
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


def _decrypted(
    origin: str, lines: Iterator[RecordedLine], decryption: Decryption, damage: Damage
) -> Iterator[RecordedLine]:
    for line in lines:
        if not is_encrypted(line.value):
            yield line
            continue
        try:
            raw = decryption.plain(EncryptedLine.of(line.value), origin)
            value = json.loads(raw)
            if not isinstance(value, dict):
                raise ValueError(f"found {type(value).__name__}, expected a JSON object")
        except KmsKeyRefused:
            continue
        except (ValueError, RecursionError) as error:
            damage.add(f"{line.where}: {error}")
            continue
        yield RecordedLine(line.where, raw, value)


def _unpacked(content: bytes) -> tuple[bytes, bool]:
    """Decompress as much as possible; return whether that was all."""
    parts: list[bytes] = []
    while content:
        stream = zlib.decompressobj(wbits=31)
        try:
            parts += [stream.decompress(content), stream.flush()]
        except zlib.error:
            # What came before the damage is kept in small steps.
            parts.append(_until_damage(content))
            return b"".join(parts), False
        if not stream.eof:
            return b"".join(parts), False
        content = stream.unused_data
    return b"".join(parts), True


def _until_damage(content: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    for start in range(0, len(content), 512):
        try:
            parts.append(stream.decompress(content[start : start + 512]))
        except zlib.error:
            break
    return b"".join(parts)
