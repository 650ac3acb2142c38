"""Requests as a run of packs records them, drawn from a model of acceptance with a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from peagle_bench.packs.pack import Make, Observed, PackWork, ServedModel
from peagle_bench.results.records import ArmRecord, Load, RequestRecord

ALONE = Load("closed", concurrency=1)
FAST = ArmRecord("fast", "p-eagle", 7, "fast")
PLAIN = ArmRecord("plain", "none", None, "plain")
WORK = PackWork(())


def model(context: int = 8192, *, stand_in: bool = False, characters: int = 4) -> ServedModel:
    """A model whose tokens are so many characters."""

    def ids_of(body: Mapping[str, Any]) -> tuple[int, ...]:
        text = body.get("prompt") or "".join(message["content"] for message in body["messages"])
        rows = tuple(crc32(text[at : at + characters].encode()) for at in range(0, len(text), characters))
        assert len(rows) <= context, "an engine refuses to tokenize more than its context"
        return rows

    return ServedModel(context, stand_in, ids_of)


def asked(context: int = 8192, *, stand_in: bool = False, **more: object) -> Make:
    return Make(model(context, stand_in=stand_in), **more)  # type: ignore[arg-type]


def request(name: str, *, drafts: int = 20, accepted: int = 40, **more: object) -> RequestRecord:
    given: dict[str, object] = {
        "arm": "fast",
        "load": ALONE,
        "prompt_id": name,
        "phase": "measured",
        "due_s": 0.0,
        "sent_s": 0.0,
        "first_s": 0.1,
        "last_s": 1.0,
        "done_s": 1.0,
        "input_tokens": 500,
        "output_tokens": drafts + accepted,
        "chunks": drafts,
        "drafts": drafts,
        "accepted": accepted,
        "finish_reason": "length",
        "output_sha256": "same",
    }
    return RequestRecord(**{**given, **more})  # type: ignore[arg-type]


def drawn(
    rng: random.Random,
    parts: Sequence[str],
    chance: Callable[[str], float],
    *,
    units: int = 12,
    tokens: int = 64,
    k: int = 7,
    spread: float = 0.15,
) -> list[RequestRecord]:
    """Draw answers: a draft token is accepted with ``chance`` of its part, which differs by unit.

    The units' own levels spread by ``spread``, as prompts do.
    """
    rows = []
    for unit in range(units):
        level = rng.gauss(0.0, spread)
        for part in parts:
            rate = min(0.97, max(0.02, chance(part) + level))
            drafts = accepted = 0
            while drafts + accepted < tokens:
                drafts += 1
                run = 0
                while run < k and rng.random() < rate:
                    run += 1
                accepted += run
            rows.append(request(f"{unit}/{part}", drafts=drafts, accepted=accepted))
    return rows


def observed(requests: Sequence[RequestRecord], work: PackWork = WORK, **more: object) -> Observed:
    beside = {"baseline": PLAIN, "baseline_requests": tuple(requests), **more}
    return Observed(work, FAST, tuple(requests), **beside)  # type: ignore[arg-type]
