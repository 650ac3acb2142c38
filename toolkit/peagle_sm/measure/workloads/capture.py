"""SageMaker data-capture files: what your users really sent.

A line is ``{"captureData": {"endpointInput": {"data": "…", "encoding": "JSON" | "BASE64" | "CSV"}, …},
"eventMetadata": {"eventId": "…", …}, …}`` (SageMaker Developer Guide, "Capture data from real-time
endpoint"). They lie under ``<prefix>/<endpoint>/<variant>/yyyy/mm/dd/hh/*.jsonl``; a directory is read whole.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.prompt_files import empty, json_lines, read_bytes, sha256_of
from peagle_sm.measure.workloads.own import checked_body
from peagle_sm.measure.workloads.questions import Question, Source

_SUFFIXES = (".jsonl", ".jsonl.gz")


def read_capture(path: Path) -> Source:
    """Read one capture file, or every one below a directory.

    Requests that were sent twice (a retry has the same event id) count once. Lines without an OpenAI request
    in them are left out and counted in the notes: an endpoint also captures what it refused.

    Raises:
        SpecError: nothing in it is a captured OpenAI request, or a line is not JSON.
    """
    files = (
        sorted(each for each in path.rglob("*") if each.name.endswith(_SUFFIXES)) if path.is_dir() else [path]
    )
    if not files:
        raise SpecError(
            f"{path}: no capture file ({' or '.join(_SUFFIXES)}) in it",
            next_step="copy them with: aws s3 cp --recursive <DestinationS3Uri> DIRECTORY",
        )
    contents = [read_bytes(each) for each in files]
    questions: dict[str, Question] = {}
    refused: list[str] = []
    for file, content in zip(files, contents, strict=True):
        for number, line in json_lines(content, str(file)):
            try:
                question = _question(line, f"{file}, line {number}")
            except SpecError as error:
                refused.append(error.message)
                continue
            questions.setdefault(question.id, question)
    if not questions:
        raise _unusable(path, refused)
    notes = (f"{len(refused)} captured lines were left out, the first: {refused[0]}",) if refused else ()
    origin = f"{path.name} ({len(files)} file{'' if len(files) == 1 else 's'})"
    return Source(path.name, tuple(questions.values()), origin, sha256_of(*contents), None, notes)


def is_capture(line: Mapping[str, Any]) -> bool:
    """Whether a line of a file looks captured."""
    return "captureData" in line


def _question(line: Mapping[str, Any], where: str) -> Question:
    captured = (line.get("captureData") or {}).get("endpointInput") or {}
    event = (line.get("eventMetadata") or {}).get("eventId")
    body = checked_body(_body(captured, where), where)
    return Question(f"capture/{event or where.rpartition('/')[2]}", body=body)


def _body(captured: Mapping[str, Any], where: str) -> dict[str, Any]:
    data, encoding = captured.get("data"), captured.get("encoding")
    if not isinstance(data, str):
        raise SpecError(f"{where}: captures no input", next_step="capture with CaptureMode Input")
    try:
        value = json.loads(base64.b64decode(data, validate=True) if encoding == "BASE64" else data)
    except ValueError as error:
        raise SpecError(f"{where}: its input is not JSON (encoding {encoding}): {error}") from error
    if not isinstance(value, dict):
        raise SpecError(f"{where}: its input is a {type(value).__name__}, not an OpenAI request")
    return value


def _unusable(path: Path, refused: list[str]) -> SpecError:
    if not refused:
        return empty(str(path))
    return SpecError(
        f"{path}: none of its {len(refused)} captured lines is an OpenAI request; the first: {refused[0]}",
        next_step="capture an endpoint that serves OpenAI requests, with CaptureMode Input",
    )


def first_object(content: bytes, origin: str) -> Iterator[Mapping[str, Any]]:
    """The first line's object, if there is one."""
    for _, line in json_lines(content, origin):
        yield line
        return
