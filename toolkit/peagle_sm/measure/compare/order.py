"""Who goes when: turns of single prompts, and time blocks in ABBA order. Pure.

The same step took 3.5 and 4.7 ms 25 minutes apart on one machine, so arms measured one after the other say
little. A steady drift cancels when every arm's mean time is the same: ABBA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def turn_order(arms: Sequence[str], turn: int) -> list[str]:
    """The order in which arms answer prompt number ``turn``: rotated, and reversed every other cycle.

    Over ``2 * len(arms)`` turns each arm goes first, and follows each neighbour, equally often.
    """
    start = turn % len(arms)
    rotated = [*arms[start:], *arms[:start]]
    return rotated[::-1] if (turn // len(arms)) % 2 else rotated


def abba(arms: Sequence[str], blocks: int) -> Iterator[tuple[int, str]]:
    """Block by block, each arm twice: forth and back, beginning with another arm each block.

    Yields:
        The block's number and the arm that is under load next; ``2 * len(arms) * blocks`` of them.
    """
    for block in range(blocks):
        start = block % len(arms)
        forth = [*arms[start:], *arms[:start]]
        for arm in (*forth, *reversed(forth)):
            yield block, arm
