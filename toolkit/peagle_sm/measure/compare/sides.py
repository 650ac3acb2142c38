"""What is compared with what: the sides of a comparison, each one arm per deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peagle_sm.measure.records import ArmRecord, Mode

_SLOWEST_FIRST: dict[Mode, int] = {"none": 0, "eagle3": 1, "p-eagle": 2}
CONTROL = " (A/A)"  #: ends the name of an arm that is another one once more


@dataclass(frozen=True)
class Side:
    """One side of the comparison: the same thing, deployed once or several times."""

    arms: tuple[ArmRecord, ...]

    @property
    def name(self) -> str:
        """That of its first deployment's arm."""
        return self.arms[0].name

    @property
    def speculates(self) -> bool | None:
        """None where the mode is not known."""
        mode = self.arms[0].mode
        return None if mode == "unknown" else mode != "none"

    @property
    def is_control(self) -> bool:
        """Whether it is another side once more."""
        return self.arms[0].control


@dataclass(frozen=True)
class Pair:
    """``faster`` is what is hoped to be faster; the data decide."""

    faster: Side
    slower: Side


def control_of(side: Side) -> Side:
    """The same endpoints once more, asked as if they were others: their ratio is 1, whatever comes out."""
    return Side(tuple(replace(arm, name=arm.name + CONTROL, control=True) for arm in side.arms))


def in_order(sides: Sequence[Side]) -> list[Side]:
    """Slowest mode first where every side has a mode of its own; else as they were given."""
    modes = [side.arms[0].mode for side in sides]
    if len(set(modes)) < len(modes) or "unknown" in modes:
        return list(sides)
    return sorted(sides, key=lambda side: _SLOWEST_FIRST[side.arms[0].mode])


def pairs_of(sides: Sequence[Side]) -> list[Pair]:
    """Every side over every one before it; a control over the one that it repeats."""
    arms = [side for side in sides if not side.is_control]
    found = [Pair(later, arms[before]) for place, later in enumerate(arms) for before in range(place)]
    by_name = {side.name: side for side in arms}
    controls = [side for side in sides if side.is_control]
    return found + [Pair(side, by_name[side.name.removesuffix(CONTROL)]) for side in controls]
