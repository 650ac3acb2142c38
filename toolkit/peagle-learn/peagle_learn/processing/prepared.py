"""What a finished preparation left in S3, read for the sampling of the answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from peagle_bench.load.work import WorkItem
from peagle_bench.workloads import conversation_item
from peagle_learn.core.conversations import LearnPrompt, Split
from peagle_learn.core.processing.lines import (
    GENERAL_FILE,
    GENERAL_TRAIN_FILE,
    HELD_OUT_FILE,
    MANIFEST_FILE,
    SCHEMA,
    TRAIN_FILE,
    read_split,
)
from peagle_learn.core.processing.requests import prepared_uri
from peagle_learn.core.spec import LearnSpec
from peagle_learn.prompts import Read, redacting
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import list_sizes, read_range, split_uri
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.redaction import Redactor

_FILES = (TRAIN_FILE, HELD_OUT_FILE, GENERAL_FILE, GENERAL_TRAIN_FILE)


def read_prepared(spec: LearnSpec, session: Session, job: str) -> tuple[Read, Split]:
    """Read the prompts and the split that a finished job left, and check their hashes.

    Raises:
        SpecError: a file is missing, or is not what the job wrote.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    uri = prepared_uri(spec, job)
    bucket, prefix = split_uri(uri)
    sizes = list_sizes(session, bucket, prefix)

    def content(name: str) -> bytes:
        if name not in sizes:
            raise _changed(uri, f"{name} is missing")
        return read_range(session, bucket, prefix + name, 0, sizes[name]) if sizes[name] else b""

    manifest = json.loads(content(MANIFEST_FILE))
    if manifest.get("schema") != SCHEMA:
        raise _changed(uri, f"{MANIFEST_FILE} is of {manifest.get('schema')}, expected {SCHEMA}")
    files = {name: content(name) for name in _FILES}
    for name, told in files.items():
        if hashlib.sha256(told).hexdigest() != manifest["files"][name]["sha256"]:
            raise _changed(uri, f"{name} was changed after the job wrote it")
    split = read_split(files, manifest)
    prompts = [
        *(prompt for each in (*split.train, *split.held_out, *split.general_train) for prompt in each.prompts)
    ]
    redact = _redacting(spec.data.max_tokens)
    items = {each.id: _item(each, redact) for each in prompts}
    return (
        Read(
            tuple(prompts),
            items,
            {place: digest for place, digest in manifest["sources"].items()},
            manifest["redacted"],
            manifest["token_ids"],
            tuple(manifest["notes"]),
        ),
        split,
    )


def _redacting(max_tokens: int) -> Callable[[WorkItem], WorkItem]:
    redactor = Redactor()
    return lambda item: redacting(item, redactor, max_tokens)


def _item(prompt: LearnPrompt, redact: Callable[[WorkItem], WorkItem]) -> WorkItem:
    """Make the request of a prompt; the next turns of a conversation are redacted with their answers."""
    plain = WorkItem(prompt.id, prompt.body, prompt.category, labels=prompt.labels)
    if not prompt.turns:
        return plain
    settings: Mapping[str, object] = {name: each for name, each in prompt.body.items() if name != "messages"}
    return replace(redact(conversation_item(plain, prompt.turns, settings)), body=prompt.body)


def _changed(uri: str, what: str) -> SpecError:
    return SpecError(
        f"{uri}: {what}",
        next_step="Delete what is stored with `peagle-sm learn delete-data`, and run the command again: the"
        " jobs then run anew.",
    )
