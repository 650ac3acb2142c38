"""Prompts of learn.yaml: read from traffic or files, redacted, and compared with the target.

Nothing is sent here. Recorded traffic is redacted already; other files are redacted here, by the same rules.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peagle_bench.load.work import WorkItem
from peagle_bench.workloads import limit_field, limit_of, load_workload
from peagle_learn.core.conversations import LearnPrompt
from peagle_learn.core.prompts import TargetTexts, is_token_ids, read_target, refuse_unfit
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.slice_values import LONGEST_VALUE
from peagle_sm.service.heads.checking import Place, Sources
from peagle_sm.traffic.redaction import Redactor

_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja")
_REDACTED = "redacted/"  #: begins the id of a prompt whose own id had a secret
#: Fields that name a person, or that change what the endpoint reports and not what it answers.
_DROPPED = (
    "user",
    "metadata",
    "safety_identifier",
    "store",
    "cache_salt",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
)


@dataclass(frozen=True)
class Read:
    """Prompts of all sources, redacted; ``items`` has the request of each prompt, by its id."""

    prompts: tuple[LearnPrompt, ...]
    items: Mapping[str, WorkItem]
    sources: Mapping[str, str | None]  #: the hash of each source
    redacted: Mapping[str, int] = field(default_factory=dict)
    token_ids: int = 0
    notes: tuple[str, ...] = ()


def read_prompts(
    sources: Sequence[str],
    session: Callable[[], Session],
    target: TargetTexts,
    *,
    max_tokens: int,
    what: str,
    prefix: str = "",
    base: Path = Path(),
) -> Read:
    """Read, redact and check the prompts of files, folders, globs and ``s3://`` prefixes.

    Args:
        sources: those of learn.yaml; a prompt's id begins with its place's number if there are several.
        session: opens the session for ``s3://``.
        target: what the prompts must fit.
        max_tokens: most tokens of an answer.
        what: the field of the spec, for messages.
        prefix: begins every prompt's id, so that two sets have different ones.
        base: folder that paths are relative to.

    Raises:
        SpecError: a source does not exist, has no prompts or a bad line, or was made for another model.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    redactor, items, prompts = Redactor(), dict[str, WorkItem](), list[LearnPrompt]()
    hashes: dict[str, str | None] = {}
    notes: list[str] = []
    paths: list[str] = []
    for source in sources:
        places = places_of(source, base)
        if not places:
            raise SpecError(f"{what}: no file matches {base / source}", next_step="Correct the pattern.")
        paths += places
    for number, path in enumerate(paths, start=1):
        loaded = load_workload(path, default_max_tokens=None, session=session, related=False)
        hashes[path], begins = loaded.sha256, prefix + (f"{number}/" if len(paths) > 1 else "")
        notes += loaded.notes
        for position, item in enumerate(loaded.items, start=1):
            name = begins + clean_id(item.prompt_id, position, redactor)
            prompt, items[name] = clean_prompt(item, name, redactor, max_tokens)
            prompts.append(prompt)
    refuse_unfit(prompts, target, what)
    kept = tuple(each for each in prompts if not is_token_ids(each))
    if not kept:
        raise SpecError(
            f"{what}: all {len(prompts):,} prompts are token ids, in which secrets cannot be found",
            next_step="Give the prompts as text or as messages.",
        )
    return Read(kept, items, hashes, dict(redactor.counts), len(prompts) - len(kept), tuple(notes))


def places_of(source: str, base: Path) -> list[str]:
    """Return what a source of learn.yaml names: an ``s3://`` address, a path, or what its pattern matches."""
    if source.startswith("s3://"):
        return [source]
    if not glob.has_magic(source):
        return [str(base / source)]
    return sorted(glob.glob(str(Path(glob.escape(str(base))) / source), recursive=True))


def clean_id(name: str, number: int, redactor: Redactor) -> str:
    """Return the id of a prompt; one with a secret in it, or named as such, becomes the prompt's number."""
    is_own = redactor.text(name) == name and not name.startswith(_REDACTED)
    return name if is_own else f"{_REDACTED}{number:05}"


def clean_prompt(
    item: WorkItem, name: str, redactor: Redactor, max_tokens: int
) -> tuple[LearnPrompt, WorkItem]:
    """Return a request without secrets under a name: as the prompt that is split, and as what is sent."""
    clean = redacting(replace(item, prompt_id=name), redactor, max_tokens)
    later = turns_of(item)[1:]
    turns = (clean.body["messages"][-1]["content"], *map(redactor.text, later)) if later else ()
    conversation = clean.conversation or None
    return LearnPrompt(name, clean.body, clean.category, clean.labels, turns, conversation), clean


def turns_of(item: WorkItem) -> tuple[str, ...]:
    """Return the user's messages of a conversation that is still to be held; none for one request."""
    if item.then is None:
        return ()
    last = item
    while last.then is not None and (following := last.then("")) is not None:
        last = following
    return tuple(each["content"] for each in last.body["messages"] if each["role"] == "user")


def redacting(item: WorkItem, redactor: Redactor, max_tokens: int) -> WorkItem:
    """Return a request without secrets, and so for every next turn of its conversation."""
    body: dict[str, Any] = {name: each for name, each in item.body.items() if name not in _DROPPED}
    body = redactor.redact(body)
    limit = limit_of(item)
    body[limit_field(body)] = max_tokens if limit is None else min(limit, max_tokens)
    follow = item.then

    def then(answer: str) -> WorkItem | None:
        following = None if follow is None else follow(answer)
        return None if following is None else redacting(following, redactor, max_tokens)

    category = item.category and redactor.text(item.category)
    conversation = item.conversation
    if redactor.text(conversation) != conversation:
        conversation = hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return replace(
        item,
        body=body,
        category=category,
        labels=_clean_labels(item.labels, redactor),
        conversation=conversation,
        then=None if follow is None else then,
    )


def _clean_labels(labels: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Return labels without secrets, as long as labels may be; one whose name is a secret is left out."""
    return {
        name: str(redactor.redact(value, name))[:LONGEST_VALUE]
        for name, value in labels.items()
        if redactor.text(name) == name
    }


def target_texts(sources: Sources, model: str, revision: str | None) -> tuple[TargetTexts, tuple[str, ...]]:
    """Read the target's tokenizer files; what cannot be read is unknown, and noted.

    Raises:
        SpecError: the target is not a catalogue model, folder or ``s3://`` prefix.
    """
    try:
        place = sources.target(model, revision)
        return read_target({name: _text(place, name) for name in _FILES}), ()
    except (NotFound, ServiceFault) as error:
        return TargetTexts(), (
            f"the target's tokenizer was not read, so the prompts are not compared: {error}",
        )


def _text(place: Place, name: str) -> bytes | None:
    try:
        return place.folder.text(name)
    except (ValueError, PeagleError):  # too large, or not readable: its facts stay unknown
        return None
