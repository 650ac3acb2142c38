"""Workloads of recorded traffic: of peagle-sm, or of SageMaker's data capture.

A line of data capture is ``{"captureData": {"endpointInput": {"data": "…", "encoding": "JSON" | "BASE64" |
"CSV"}, …}, "eventMetadata": {"eventId": "…", …}, …}`` (SageMaker Developer Guide, "Capture data from
real-time endpoint"). The files are under ``<prefix>/<endpoint>/<variant>/yyyy/mm/dd/hh/*.jsonl``. A line of
peagle-sm is a `TrafficRecord`. A folder or an S3 prefix is read with all its files.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from peagle_bench.workloads.labels import bounded_labels
from peagle_bench.workloads.own_prompts import checked_body
from peagle_bench.workloads.prompt_files import Question, Source, empty
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.exchange import labels_in
from peagle_sm.traffic.reading import Damage, RecordedLine, first_line, read_lines
from peagle_sm.traffic.records import from_line, is_record


def is_recorded(line: Mapping[str, Any]) -> bool:
    """Decide whether a line is recorded traffic, of peagle-sm or of data capture."""
    return "captureData" in line or is_record(line)


#: How the writers begin a line.
_BEGINNINGS = (b'{"schema":"peagle-sm/traffic/', b'{"captureData"')


def begins_as_record(path: Path) -> bool:
    """Decide whether a file's first readable line is recorded traffic; it may be damaged further on.

    Without any, the beginning decides: a writer that was stopped leaves a line that is cut.
    """
    line = first_line(path)
    if line is not None:
        return is_recorded(line.value)
    try:
        with path.open("rb") as file:
            return file.read(max(map(len, _BEGINNINGS))).startswith(_BEGINNINGS)
    except OSError:
        return False


def read_recorded(target: str, session: Callable[[], Session]) -> Source:
    """Read the requests of a file, a folder or an ``s3://`` prefix.

    ``session`` opens the session, if they are in S3.

    Repeated requests (a retry has the same id) count once. Lines without an OpenAI request are left out and
    counted in the notes: an endpoint also captures requests that it refused. So are damaged lines.

    Raises:
        SpecError: there is no recorded OpenAI request.
        NotFound, CredentialsError, ServiceFault: S3 or KMS refuses, or does not answer.
    """
    traffic = read_lines(target, session)
    questions: dict[str, Question] = {}
    unusable = Damage()
    for line in traffic.lines:
        try:
            question = _recorded(line) if is_record(line.value) else _captured(line.value, line.where)
        except SpecError as error:
            unusable.add(error.message)
            continue
        questions.setdefault(question.id, question)
    if not questions:
        raise _without_requests(target, unusable, traffic.notes)
    labels, crowded = bounded_labels([question.labels for question in questions.values()])
    bounded = zip(questions.values(), labels, strict=True)
    name = target if target.startswith("s3://") else PurePath(target).name
    origin = f"{name} ({traffic.files} file{'' if traffic.files == 1 else 's'})"
    why = "no request to send"
    useless = unusable.notes(f"recorded line has {why}", f"recorded lines have {why}")
    notes = (*traffic.notes, *useless, *crowded)
    chosen = tuple(replace(question, labels=own) for question, own in bounded)
    return Source(name, chosen, origin, traffic.sha256, None, notes)


def _recorded(line: RecordedLine) -> Question:
    try:
        record = from_line(line.raw)
    except ValueError as error:
        raise SpecError(f"{line.where}: {error}") from None
    if record.outcome == "failed":
        raise SpecError(f"{line.where}: the request failed: {record.error}")
    # The endpoint has one model, and may be another endpoint than the recorded one.
    body = {name: value for name, value in record.request.items() if name != "model"}
    labels = labels_in(record.slices)
    return Question(
        f"traffic/{record.id}",
        body=checked_body(body, line.where),
        labels=labels,
        conversation=record.conversation,
    )


def _captured(line: Mapping[str, Any], where: str) -> Question:
    captured = _object(_object(line, "captureData"), "endpointInput")
    event = _object(line, "eventMetadata").get("eventId")
    body = checked_body(_body(captured, where), where)
    return Question(f"capture/{event or where.rpartition('/')[2]}", body=body)


def _object(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that is an object; an empty one for anything else, which a damaged line may have."""
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def _body(captured: Mapping[str, Any], where: str) -> dict[str, Any]:
    data, encoding = captured.get("data"), captured.get("encoding")
    if not isinstance(data, str):
        raise SpecError(f"{where}: no captured input", next_step="capture with CaptureMode Input")
    try:
        value = json.loads(base64.b64decode(data, validate=True) if encoding == "BASE64" else data)
    except ValueError as error:
        raise SpecError(f"{where}: the input is not JSON (encoding {encoding}): {error}") from error
    if not isinstance(value, dict):
        raise SpecError(f"{where}: the input is a {type(value).__name__}, not an OpenAI request")
    return value


def _without_requests(target: str, unusable: Damage, notes: tuple[str, ...]) -> SpecError:
    if not unusable.count:
        return (
            SpecError(
                "; ".join([f"{target} has no prompts", *notes]),
                next_step="give a recorded file or prefix with at least one whole line",
            )
            if notes
            else empty(target)
        )
    return SpecError(
        f"{target}: none of its {unusable.count} recorded lines is an OpenAI request; the first:"
        f" {unusable.first}",
        next_step="record an endpoint that serves OpenAI requests: `peagle-sm serve NAME --record FILE`,"
        " or data capture with CaptureMode Input",
    )
