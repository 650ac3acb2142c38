"""What the two jobs of a preparation write, line by line. Pure.

The first job reads: each instance has a share of the files, and writes redacted prompts. A prompt's ``place``
(number of the source, key below it, position in the file) orders the prompts of all instances as one machine
would have read them. So the second job, which alone decides repeats, near-duplicates and the split, finds the
same whatever the number of instances was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from peagle_learn.core.conversations import LearnPrompt, PromptGroup, Split
from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import bounded_labels

SCHEMA = "peagle-prepared/2"  #: 1 split conversations by their first turn alone
PROMPTS, GENERAL = "prompts", "general"
#: Files of the second job, by the parts of the split.
TRAIN_FILE, HELD_OUT_FILE = "train.jsonl", "held-out.jsonl"
GENERAL_FILE, GENERAL_TRAIN_FILE = "general.jsonl", "general-train.jsonl"
MANIFEST_FILE = "manifest.json"

Place = tuple[int, str, int]


@dataclass(frozen=True)
class ReadLine:
    """One redacted prompt, and where one machine would have read it."""

    of: str  #: `PROMPTS` or `GENERAL`
    place: Place
    prompt: LearnPrompt

    def to_json(self) -> str:
        """Return one line, without its line end."""
        line = {"set": self.of, "place": self.place, **_fields(self.prompt)}
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _fields(prompt: LearnPrompt) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": prompt.id, "body": prompt.body}
    fields |= {"turns": list(prompt.turns)} if prompt.turns else {}
    fields |= {"category": prompt.category} if prompt.category else {}
    fields |= {"of": prompt.conversation} if prompt.conversation else {}
    return fields | ({"labels": dict(prompt.labels)} if prompt.labels else {})


def read_line(line: bytes | str, origin: str) -> tuple[Mapping[str, Any], LearnPrompt]:
    """Read a line of either job: its JSON object and its prompt.

    Raises:
        SpecError: it is not such a line; the message has its place and not its text.
    """
    try:
        value = json.loads(line)
        labels = {str(name): str(each) for name, each in (value.get("labels") or {}).items()}
        turns = tuple(map(str, value.get("turns") or ()))
        prompt = LearnPrompt(
            str(value["id"]), dict(value["body"]), value.get("category"), labels, turns, value.get("of")
        )
        return value, prompt
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError(
            f"{origin} is not a line of a preparation job",
            next_step="Stop what else writes below this prefix, and run the command again.",
        ) from error


@dataclass(frozen=True)
class Collected:
    """The prompts of all instances, in the order of the sources, each id once."""

    prompts: tuple[LearnPrompt, ...]
    general: tuple[LearnPrompt, ...]
    notes: tuple[str, ...] = ()


def collected(lines: Iterable[tuple[Mapping[str, Any], LearnPrompt]]) -> Collected:
    """Put the lines of all instances together; the order in which they come does not matter."""
    ordered = sorted(lines, key=lambda each: (each[0]["set"], tuple(each[0]["place"])))
    kept: dict[str, dict[str, LearnPrompt]] = {PROMPTS: {}, GENERAL: {}}
    for value, prompt in ordered:
        if prompt.id not in kept[value["set"]]:  # a retry of a recorded request has the same id
            kept[value["set"]][prompt.id] = prompt
    notes: list[str] = []
    sets = []
    for of in (PROMPTS, GENERAL):
        prompts = tuple(kept[of].values())
        labels, crowded = bounded_labels([each.labels for each in prompts])
        sets.append(tuple(replace(each, labels=own) for each, own in zip(prompts, labels, strict=True)))
        notes += crowded
    return Collected(sets[0], sets[1], tuple(notes))


def split_files(split: Split) -> dict[str, bytes]:
    """Return the second job's files: a prompt a line, with the key of its conversation."""
    return {
        TRAIN_FILE: _group_lines(split.train),
        HELD_OUT_FILE: _group_lines(split.held_out),
        GENERAL_FILE: _group_lines([PromptGroup("", split.general)]),
        GENERAL_TRAIN_FILE: _group_lines(split.general_train),
    }


def _group_lines(groups: Iterable[PromptGroup]) -> bytes:
    rows = [{"conversation": each.key, **_fields(prompt)} for each in groups for prompt in each.prompts]
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return text.encode("utf-8", "replace")


def read_split(files: Mapping[str, bytes], counts: Mapping[str, int]) -> Split:
    """Read the second job's files back.

    Raises:
        SpecError: a file is not one of the second job's.
    """

    def groups(name: str) -> tuple[PromptGroup, ...]:
        found: dict[str, list[LearnPrompt]] = {}
        for number, line in enumerate(files[name].split(b"\n"), start=1):
            if line:
                value, prompt = read_line(line, f"{name}, line {number}")
                found.setdefault(str(value.get("conversation")), []).append(prompt)
        return tuple(PromptGroup(key, tuple(prompts)) for key, prompts in found.items())

    general = [prompt for each in groups(GENERAL_FILE) for prompt in each.prompts]
    return Split(
        train=groups(TRAIN_FILE),
        held_out=groups(HELD_OUT_FILE),
        general=tuple(general),
        general_train=groups(GENERAL_TRAIN_FILE),
        repeats=counts["repeats"],
        near_repeats=counts["near_repeats"],
        like_general=counts["like_general"],
    )
