"""Rule: parallel drafting has no effect, by the counts of accepted first and second tokens. Pure.

Parallel drafting that does not work gives a good first token and hardly ever a second: over at least 200
drafts the lower 99% confidence bound of s1 is 0.4 or more, and the upper one of s2 / s1 is below 0.15.
docs/explanation/container.md has the error rates. The gate and the toolkit have one file, since the image has
no toolkit: ``peagle_sm.core.ineffective`` is a link to it. Standard library only.
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
    """Return Wilson's confidence interval of a share; 0 to 1 without data."""
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    whole = 1 + z * z / of
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def is_ineffective(drafts: int, first: int, second: int) -> bool:
    """Return whether so few second tokens are accepted that parallel drafting has no effect.

    Args:
        drafts: number of verified drafts.
        first: number of drafts with an accepted first token.
        second: number of drafts with an accepted second token, too.
    """
    return (
        drafts >= DRAFTS_NEEDED
        and wilson(first, drafts)[0] >= FIRST_SURVIVES
        and wilson(second, first)[1] < SECOND_DOES_NOT
    )
