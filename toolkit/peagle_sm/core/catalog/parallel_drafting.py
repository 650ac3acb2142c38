"""When parallel drafting has no effect: the first draft token survives, the second hardly ever does. Pure.

`peagle_gate.acceptance` in container/ has the same rule, since the image does not hold this package; a test
holds the two equal. `stacks.acceptance` writes it as metric filters.
"""

from __future__ import annotations

import math

DRAFTS_NEEDED = 200
#: Lower confidence bound of s1. Below it a head may just not know the text.
FIRST_SURVIVES = 0.4
#: Upper confidence bound of s2/s1. Healthy heads of the small family have 0.4 and more, broken ones 0.03.
SECOND_DOES_NOT = 0.15
Z = 2.33  #: each bound is one-sided, at 99%: the fewer drafts, the clearer the rates must be


def wilson(hits: int, of: int, z: float = Z) -> tuple[float, float]:
    """The confidence interval of a share, by Wilson's score; 0 to 1 without data."""
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def is_ineffective(drafts: int, first: int, second: int) -> bool:
    """Whether so few second tokens survive that parallel drafting has no effect.

    Args:
        drafts: how many drafts were verified.
        first: how many kept their first token.
        second: how many kept their second token too.
    """
    return (
        drafts >= DRAFTS_NEEDED
        and wilson(first, drafts)[0] >= FIRST_SURVIVES
        and wilson(second, first)[1] < SECOND_DOES_NOT
    )
