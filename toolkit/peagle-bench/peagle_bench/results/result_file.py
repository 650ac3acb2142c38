"""Results files: JSON lines, header first, appended during a run and readable at any time.

``{"kind": "request", …}``: ``kind`` is a key of ``records.KINDS``, the rest are the record's fields; a field
with its default value may be omitted. A killed run leaves at most its last line incomplete.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from peagle_bench.results import records
from peagle_bench.results.records import KINDS, SCHEMA, Record
from peagle_sm.aws.files import cannot_write, writing
from peagle_sm.core.errors import SpecError
from peagle_sm.core.words import first_fault

_KIND_OF = {record_type: kind for kind, record_type in KINDS.items()}


@dataclass(frozen=True)
class Results:
    """Content of a results file, in the file's order; ``warnings`` name what was skipped.

    ``source`` is the file's name, set by readers of several files.
    """

    header: records.Header
    arms: tuple[records.ArmRecord, ...] = ()
    requests: tuple[records.RequestRecord, ...] = ()
    points: tuple[records.PointRecord, ...] = ()
    comparisons: tuple[records.ComparisonRecord, ...] = ()
    fits: tuple[records.FitRecord, ...] = ()
    checks: tuple[records.CheckRecord, ...] = ()
    windows: tuple[records.Reading, ...] = ()
    slices: tuple[records.SliceRecord, ...] = ()
    packs: tuple[records.PackRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The results file of a run, its content, and notes for the reader of the figures."""

    path: Path
    results: Results
    notes: tuple[str, ...]


def encode(record: Any) -> Any:
    """Convert a record, or a part of one, to plain data; fields with their default are omitted.

    A request has two dozen fields and most requests fill half of them, so this halves the file.
    """
    record_type: Any = type(record)
    return _adapter(record_type).dump_python(record, exclude_defaults=True, warnings=False)


@cache
def _adapter(record_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(record_type)


def to_line(record: Record) -> str:
    """Encode a record as one line, without its line end.

    Raises:
        ValueError: a figure is not finite; unknown figures must be None.
    """
    value = {"kind": _KIND_OF[type(record)], **encode(record)}
    if isinstance(record, records.Header):
        value["schema"] = record.schema  # always written: it defines how to read the rest
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def from_line(text: str | bytes) -> Record:
    """Decode one line.

    Raises:
        ValueError: not a JSON object, an unknown kind, or a field is missing or has a wrong type.
    """
    value = json.loads(text)
    if not isinstance(value, dict) or "kind" not in value:
        raise ValueError('expected a JSON object with a "kind"')
    kind = value["kind"]
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
    record_type: Any = KINDS[kind]
    try:
        return cast(Record, _adapter(record_type).validate_json(text, strict=True))
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def read(path: Path) -> Results:
    """Read a whole file.

    Raises:
        SpecError: the file does not exist, is empty, has no header or another schema, or a line other than
            an incomplete last one cannot be read; the message names the line.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"results file {path} not found", next_step="check the path") from None
    if not content.strip():
        raise SpecError(f"{path} is empty", next_step="run the measurement again")
    whole, cut = _split(content)
    records = list(_records(path, whole))
    if not records:
        if not cut.startswith(b'{"kind"'):
            raise _no_results(path)
        raise SpecError(f"{path} has no complete line", next_step="run the measurement again")
    _demand_header(path, records[0])
    warnings: tuple[str, ...] = ()
    if cut:
        warnings = (f"{path}: line {len(whole) + 1} is incomplete and was skipped",)
    return collect(records, warnings)


def read_files(paths: Sequence[Path]) -> list[Results]:
    """Read several files; each has its name in ``source``. Errors as `read`."""
    return [replace(read(path), source=str(path)) for path in paths]


def records_of(results: Results) -> Iterable[Record]:
    """Yield all records of a file, header first."""
    yield results.header
    for part in fields(Results):
        if part.name not in ("header", "warnings", "source"):
            yield from getattr(results, part.name)


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    """Split into complete lines and an incomplete last one, if there is one."""
    lines = content.split(b"\n")
    last = lines.pop()
    if not last:
        return lines, b""
    try:
        from_line(last)
    except ValueError:
        return lines, last
    return [*lines, last], b""


def _records(path: Path, lines: Iterable[bytes]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if number == 1:
            _demand_schema(path, line)
        try:
            yield from_line(line)
        except ValueError as error:  # also JSONDecodeError and UnicodeDecodeError
            if number == 1 and not _has_kind(line):
                raise _no_results(path) from error
            raise SpecError(
                f"{path}, line {number}: {error}",
                next_step="remove that line if the file was edited by hand; else run the measurement again",
            ) from error


def _has_kind(line: bytes) -> bool:
    try:
        first = json.loads(line)
    except ValueError:
        return line.startswith(b'{"kind"')  # an edited or damaged line
    return isinstance(first, dict) and "kind" in first


def _no_results(path: Path) -> SpecError:
    return SpecError(
        f"{path} is not a results file of peagle-sm",
        next_step="name a file that bench, compare, tune or verify wrote (results/….jsonl)",
    )


def _demand_schema(path: Path, line: bytes) -> None:
    try:
        first = json.loads(line)
    except ValueError:
        return  # reported later as a bad line
    schema = first.get("schema", SCHEMA) if isinstance(first, dict) else SCHEMA
    if str(schema).startswith("peagle-sm/traffic/"):
        raise SpecError(
            f"{path} is recorded traffic, not a results file",
            next_step=f"measure with its prompts: peagle-sm compare PLAIN ENDPOINT --workload {path}; or see"
            f" its acceptance: peagle-sm acceptance NAME --records {path}",
        )
    if schema != SCHEMA:
        raise SpecError(
            f"{path}, line 1: found schema {schema!r}; this version of peagle-sm reads {SCHEMA!r}",
            next_step="read it with the version that wrote it (see the header's provenance)",
        )


def _demand_header(path: Path, first: Record) -> None:
    if not isinstance(first, records.Header):
        raise SpecError(
            f'{path}, line 1: found kind "{_KIND_OF[type(first)]}"; expected "header": the beginning of the'
            " file is missing",
            next_step="run the measurement again",
        )


def collect(every: Iterable[Record], warnings: tuple[str, ...] = ()) -> Results:
    """Sort records, the header among them, into the parts of a file's content."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for record in every:
        by_kind[_KIND_OF[type(record)]].append(record)
    return Results(
        header=by_kind["header"][0],
        arms=tuple(by_kind["arm"]),
        requests=tuple(by_kind["request"]),
        points=tuple(by_kind["point"]),
        comparisons=tuple(by_kind["comparison"]),
        fits=tuple(by_kind["fit"]),
        checks=tuple(by_kind["check"]),
        windows=tuple(by_kind["window"]),
        slices=tuple(by_kind["slice"]),
        packs=tuple(by_kind["pack"]),
        warnings=warnings,
    )


class ResultWriter:
    """Writer that appends records to a results file, unbuffered; one writer at a time."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        """Begin a new file (and its directory).

        Raises:
            SpecError: the file is not empty and ``overwrite`` is False, or another run is writing it.
        """
        self.path = path
        if not overwrite and path.exists() and path.stat().st_size:
            raise SpecError(
                f"{path} exists already",
                next_step="give another file (--out)",
            )
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_locked(path)
            self._file.truncate(0)

    def append(self, record: Record) -> None:
        """Write one record; for all but requests and arms, also wait until it is on disk.

        Raises:
            CannotWrite: the disk is full, or the file is no longer writable. Earlier lines stay complete.
        """
        whole = os.fstat(self._file.fileno()).st_size
        try:
            _write_all(self._file, to_line(record).encode() + b"\n")
            if not isinstance(record, records.RequestRecord | records.ArmRecord):
                os.fsync(self._file.fileno())
        except OSError as error:
            self._give_up(whole)
            refused = cannot_write(error, self.path)
            if whole:
                refused.next_step = f"{refused.next_step} The figures so far: `peagle-sm report {self.path}`."
            raise refused from error

    def _give_up(self, whole: int) -> None:
        """Remove an incomplete last line, and the file if no line is left."""
        with suppress(OSError):
            self._file.truncate(whole)
            if not whole:
                self.path.unlink()

    def close(self) -> None:
        """Close the file, and remove it if it is empty; a second call does nothing."""
        if self._file.closed:
            return
        with suppress(OSError):
            if not os.fstat(self._file.fileno()).st_size:
                self.path.unlink()
        self._file.close()

    def __enter__(self) -> ResultWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def _write_all(file: FileIO, data: bytes) -> None:
    """Write all data to an unbuffered file, which may accept less per call."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) or 0 :]


def _open_locked(path: Path) -> FileIO:
    with writing(path):
        file = FileIO(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise SpecError(
            f"another run is writing {path}",
            next_step="wait for it, or give another file (--out)",
        ) from error
    return file


def demand_command(path: Path, command: str) -> None:
    """Refuse to continue the file of another command.

    Raises:
        SpecError: the file does not exist, cannot be read, or another command wrote it.
    """
    writer = read(path).header.command
    if writer != command:
        raise SpecError(
            f"{path} is a results file of {writer}; {command} can continue only its own files",
            next_step=f"leave --resume out, or give a {command} file; to see this one, run "
            f"`peagle-sm report {path}`",
            details={"command": writer},
        )


def demand_same_config(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a run with other settings.

    Raises:
        SpecError: a setting differs; the message lists all differences.
    """
    before = _flat(before)
    wanted = _flat(json.loads(json.dumps(dict(now))))  # in JSON types, as in the header
    different = sorted(
        key for key in {*before, *wanted} if before.get(key, _ABSENT) != wanted.get(key, _ABSENT)
    )
    if different:
        changes = "; ".join(
            f"{key} was {_shown(before, key)}, now {_shown(wanted, key)}" for key in different
        )
        raise SpecError(
            f"{path} belongs to a run with other settings: {changes}",
            next_step="resume with the same options, or start a new run in another file (--out)",
            details={"different": different},
        )


_ABSENT = object()


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten ``{"workload": {"name": …}}`` to ``{"workload.name": …}``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _shown(config: Mapping[str, Any], key: str) -> str:
    return json.dumps(config[key]) if key in config else "not set"
