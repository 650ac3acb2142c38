"""What an arm did with a unit (a prompt, or a time block): sums of tokens, seconds and drafts. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.measure.load import Window
from peagle_sm.measure.load.points import chunks_inside
from peagle_sm.measure.records import RequestRecord


@dataclass(frozen=True)
class Cell:
    """Sums over the requests of a unit; ``seconds`` of waiting (prompt) or of the clock (block).

    ``drafts`` are verification steps and ``advanced`` the tokens that they gave (accepted ones and the free
    one each): both None where any request does not tell, and both equal to ``tokens`` without speculation.
    """

    tokens: float
    seconds: float
    drafts: float | None
    advanced: float | None


Cells = Mapping[Any, Cell]


def add(cells: Iterable[Cell]) -> Cell:
    """The cell of all of them together."""
    every = list(cells)
    return Cell(
        math.fsum(cell.tokens for cell in every),
        math.fsum(cell.seconds for cell in every),
        _sum_known([cell.drafts for cell in every]),
        _sum_known([cell.advanced for cell in every]),
    )


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def of_prompts(records: Iterable[RequestRecord], *, speculates: bool | None) -> dict[Hashable, Cell]:
    """A cell for each prompt that was answered, all its turns together; for one request at a time.

    Args:
        records: of one arm under one load; only measured ones count. A prompt with a failed request is
            left out, since the rest of it is not what the other arms answer.
        speculates: False for an arm known to decode plainly, None where nobody knows.
    """
    by_prompt: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        if record.phase == "measured":
            by_prompt[record.prompt_id].append(record)
    return {
        prompt: add(_whole(record, speculates) for record in turns)
        for prompt, turns in by_prompt.items()
        if all(record.error is None and record.output_tokens for record in turns)
    }


def _whole(record: RequestRecord, speculates: bool | None) -> Cell:
    return _cell(record, 1.0, record.done_s - record.sent_s, speculates)


def _cell(record: RequestRecord, share: float, seconds: float, speculates: bool | None) -> Cell:
    tokens = share * (record.output_tokens or 0)
    if speculates is False:
        return Cell(tokens, seconds, tokens, tokens)
    if record.drafts is None or record.accepted is None:
        return Cell(tokens, seconds, None, None)
    return Cell(tokens, seconds, share * record.drafts, share * (record.drafts + record.accepted))


def of_blocks(
    records: Iterable[RequestRecord],
    windows: Iterable[tuple[int, Window]],
    *,
    speculates: bool | None,
) -> dict[Hashable, Cell]:
    """A cell for each time block: the tokens that arrived within its windows, by their seconds.

    A window, of the number of its block, is a stretch of time in which one arm alone was under load.

    Whatever its phase, a request counts with the share of its chunks that came within the window, so that
    long answers at the edges are neither lost nor counted whole.
    """
    by_block: dict[int, list[Cell]] = defaultdict(list)
    listed = [record for record in records if record.error is None and record.output_tokens]
    for block, window in windows:
        own = [record for record in listed if record.block == block]
        parts = [_cell(record, share_within(record, window), 0.0, speculates) for record in own]
        here = add(part for part in parts if part.tokens)
        by_block[block].append(Cell(here.tokens, window.seconds, here.drafts, here.advanced))
    return {block: add(cells) for block, cells in by_block.items()}


def of_requests_in_blocks(
    records: Iterable[RequestRecord], *, speculates: bool | None
) -> dict[Hashable, Cell]:
    """A cell for each time block of whole requests and the seconds that each waited: for one category.

    Under load the clock is shared by all categories, so a category's rate is what its own requests saw.
    """
    by_block: dict[Hashable, list[Cell]] = defaultdict(list)
    for record in records:
        if record.phase == "measured" and record.error is None and record.output_tokens:
            by_block[record.block].append(_whole(record, speculates))
    return {block: add(cells) for block, cells in by_block.items()}


def share_within(record: RequestRecord, window: Window) -> float:
    """The share of a request's content chunks that arrived within the window, 0 to 1."""
    return chunks_inside(record, window) / record.chunks if record.chunks else 0.0
