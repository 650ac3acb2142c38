"""Who goes when: turns of single prompts, and time blocks in ABBA order. Pure.

The same step took 3.5 and 4.7 ms 25 minutes apart on one machine, so arms measured one after the other say
little. A steady drift cancels when every arm's mean time is the same: ABBA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peagle_sm.measure.turns import turn_order

__all__ = ["abba", "turn_order"]


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
