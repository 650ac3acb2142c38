"""Cost of a regular expression in the grammar compiler. Pure, and without recursion.

The figures are estimates, from measurements of xgrammar (docs/explanation/container.md). Unknown syntax
counts as ordinary characters, so a pattern that the engine itself refuses may pass here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Most copies of a repeated expression that count as further choices; more copies cost no more.
_COPIES = 8
_MOST = 10**9  # figures are cut here, so that nested repetitions make no huge integers
_REPEATED = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_SKIPPED = re.compile(r"\?(?:[:=!]|<[=!]|P?<\w*>)")
_BRACED = re.compile(r"[upPx]\{[^}]*\}")


@dataclass(frozen=True)
class Shape:
    """Cost of an expression.

    Attributes:
        size: characters and classes after every repetition is written out.
        choices: places where the matcher can go on in several ways at once, along one branch.
        empty: it may match nothing.
    """

    size: int = 0
    choices: int = 0
    empty: bool = True


@dataclass
class Cost:
    """Cost of a whole pattern.

    Attributes:
        shape: of the whole.
        depth: how deep its groups nest.
        repeats: the largest bound of a repetition.
        repeats_empty: a repetition of an expression that may match nothing.
    """

    shape: Shape = field(default_factory=Shape)
    depth: int = 0
    repeats: int = 0
    repeats_empty: bool = False


class _Builder:
    """Sum up atoms, branches, groups and repetitions as a scanner meets them."""

    def __init__(self) -> None:
        self.cost = Cost()
        self._groups: list[tuple[list[Shape], list[Shape]]] = [([], [])]  # branches that ended, this branch

    def atom(self, shape: Shape) -> None:
        self._groups[-1][1].append(shape)

    def branch(self) -> None:
        ended, current = self._groups[-1]
        ended.append(_sequence(current))
        current.clear()

    def open(self) -> None:
        self._groups.append(([], []))
        self.cost.depth = max(self.cost.depth, len(self._groups) - 1)

    def close(self) -> None:
        if len(self._groups) > 1:
            ended, current = self._groups.pop()
            self.atom(_either([*ended, _sequence(current)]))

    def repeat(self, least: int, most: int | None) -> None:
        """Repeat the last atom; ``most`` None is without end."""
        current = self._groups[-1][1]
        if not current:
            return
        atom = current.pop()
        copies = max(least, 1) if most is None else most
        if atom.empty and atom.size and (most is None or most > 1):
            self.cost.repeats_empty = True
        if most is not None or least > 1:
            self.cost.repeats = max(self.cost.repeats, copies, least)
        choices = atom.choices * min(max(copies, 2) if most is None else copies, _COPIES)
        if most != least:
            choices += 1 if copies <= 1 else 2
        current.append(Shape(min(atom.size * copies, _MOST), min(choices, _MOST), least == 0 or atom.empty))

    def finish(self) -> Cost:
        while len(self._groups) > 1:
            self.close()
        ended, current = self._groups[0]
        self.cost.shape = _either([*ended, _sequence(current)])
        return self.cost


def _sequence(shapes: list[Shape]) -> Shape:
    return Shape(
        min(sum(shape.size for shape in shapes), _MOST),
        min(sum(shape.choices for shape in shapes), _MOST),
        all(shape.empty for shape in shapes),
    )


def _either(shapes: list[Shape]) -> Shape:
    return Shape(
        min(sum(shape.size for shape in shapes), _MOST),
        max(shape.choices for shape in shapes),
        any(shape.empty for shape in shapes),
    )


_ONE = Shape(1, 0, False)


def cost_of_pattern(pattern: str) -> Cost:
    """Return the cost of a regular expression in one pass."""
    built, at = _Builder(), 0
    while at < len(pattern):
        sign = pattern[at]
        at += 1
        if sign == "\\":
            braced = _BRACED.match(pattern, at)
            at = braced.end() if braced else at + 1
            built.atom(_ONE)
        elif sign == "[":
            at = _class_end(pattern, at)
            built.atom(_ONE)
        elif sign == "(":
            built.open()
            skipped = _SKIPPED.match(pattern, at)
            at = skipped.end() if skipped else at
        elif sign == ")":
            built.close()
        elif sign == "|":
            built.branch()
        elif sign in "*+?":
            built.repeat(1 if sign == "+" else 0, 1 if sign == "?" else None)
        elif sign == "{" and (bounds := _REPEATED.match(pattern, at - 1)):
            at = bounds.end()
            built.repeat(*_bounds(bounds))
        elif sign not in "^$":
            built.atom(_ONE)
    return built.finish()


def _class_end(pattern: str, at: int) -> int:
    """Return the place after a class's ``]``; as in xgrammar, the first one that is not escaped ends it."""
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _bounds(match: re.Match[str]) -> tuple[int, int | None]:
    least = int(match[1][:9] or 0)
    if not match[2]:
        return least, least
    return least, int(match[3][:9]) if match[3] else None
