"""Cost of a regular expression or an EBNF grammar in the grammar compiler. Pure, and without recursion.

The figures are estimates, from measurements of xgrammar (docs/explanation/container.md). Unknown syntax
counts as ordinary characters, so a pattern that the engine itself refuses may pass here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Most copies of a repeated expression that count as further choices; more copies cost no more.
_COPIES = 8
_MOST = 10**9  # figures are cut here, so that nested repetitions make no huge integers
_REPEATED = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_LARK_REPEATED = re.compile(r"~\s*(\d+)(?:\s*\.\.\s*(\d+))?")
_SKIPPED = re.compile(r"\?(?:[:=!]|<[=!]|P?<\w*>)")
_BRACED = re.compile(r"[upPx]\{[^}]*\}")
_RULE = re.compile(r"^[ \t]*[?!]*([A-Za-z_][\w.-]*)(?:\{[^}\n]*\})?[ \t]*(::=|:)", re.MULTILINE)
_TOKEN = re.compile(
    r'(?P<space>\s+|(?:#|//)[^\n]*)|(?P<text>"(?:[^"\\\n]|\\.)*"i?)|(?P<regex>/(?:[^/\\\n]|\\.)+/[a-z]*)'
    r"|(?P<class>\[(?:[^\]\\]|\\.)*\])|(?P<name>[A-Za-z_][\w.-]*)|(?P<other>.)",
    re.DOTALL,
)


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
    """Cost of a whole pattern or grammar.

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


def rules_of(grammar: str) -> dict[str, str]:
    """Return the rules of an EBNF or Lark grammar: the text of each by its name."""
    starts = list(_RULE.finditer(grammar))
    ends = [*(start.start() for start in starts[1:]), len(grammar)]
    rules: dict[str, str] = {}
    for start, end in zip(starts, ends, strict=False):
        rules[start[1]] = rules.get(start[1], "") + " | " * (start[1] in rules) + grammar[start.end() : end]
    return rules


def cost_of_rule(text: str, shapes: Mapping[str, Shape]) -> tuple[Cost, list[str]]:
    """Return the cost of one rule, given the ``shapes`` of other rules, and its regexes."""
    built, regexes, at = _Builder(), list[str](), 0
    while at < len(text):
        repeated = _REPEATED.match(text, at) or _LARK_REPEATED.match(text, at)
        if repeated:
            at = repeated.end()
            if repeated.re is _REPEATED:
                built.repeat(*_bounds(repeated))
            else:
                least = int(repeated[1][:9])
                built.repeat(least, int(repeated[2][:9]) if repeated[2] else least)
            continue
        token = _TOKEN.match(text, at)
        assert token is not None, "the last alternative matches any character"
        at, kind, value = token.end(), token.lastgroup, token.group()
        if kind == "text":
            built.atom(Shape(len(value) - 2, 0, len(value) <= 2))
        elif kind == "class":
            built.atom(_ONE)
        elif kind == "regex":
            regexes.append(value[1 : value.rindex("/")])
            built.atom(cost_of_pattern(regexes[-1]).shape)
        elif kind == "name":
            built.atom(shapes.get(value, _ONE))
        elif value in "([":
            built.open()
        elif value in ")]":
            built.close()
        elif value == "|":
            built.branch()
        elif value in "*+?":
            built.repeat(1 if value == "+" else 0, 1 if value == "?" else None)
    return built.finish(), regexes


def names_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each rule that a rule names, and the name before it: "" after a text, None after neither."""
    before: str | None = None
    for token in _TOKEN.finditer(text):
        kind, value = token.lastgroup, token.group()
        if kind == "name":
            yield value, before
            before = value
        elif kind in ("class", "regex") or (kind == "text" and len(value) > 2):
            before = ""
        elif value == "|" or (value in "*?{~" and before == ""):
            before = None


@dataclass
class _Part:
    """One part of a rule's branch: fixed text in it, the rules it names, and those that it repeats."""

    text: bool = False
    names: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class OpenNames:
    """Rules that a rule names without fixed text on both sides, and those of them that it repeats."""

    names: frozenset[str]
    repeated: frozenset[str]


def open_names(text: str) -> OpenNames:
    """Return the names in a rule that no fixed text encloses. A repetition with a text does not count."""
    frames: list[tuple[list[_Part], list[_Part]]] = [([], [])]  # branches that ended, parts of this branch

    def close() -> _Part:
        ended, parts = frames.pop()
        return _any_of([*ended, _enclosed(parts)])

    at = 0
    while at < len(text):
        parts = frames[-1][1]
        bounds = _REPEATED.match(text, at) or _LARK_REPEATED.match(text, at)
        token = _TOKEN.match(text, at)
        assert token is not None, "the last alternative matches any character"
        at, kind, value = token.end(), token.lastgroup, token.group()
        if bounds:
            at = bounds.end()
            _repeat(parts, optional=not int(bounds[1][:9] or 0))
        elif kind == "text":
            parts.append(_Part(text=len(value) > 2))
        elif kind == "name":
            parts.append(_Part(names={value}))
        elif kind in ("class", "regex"):
            parts.append(_Part())
        elif value in "([":
            frames.append(([], []))
        elif value in ")]" and len(frames) > 1:
            part = close()
            frames[-1][1].append(part)
        elif value == "|":
            frames[-1][0].append(_enclosed(parts))
            parts.clear()
        elif value in "*+":
            _repeat(parts, optional=value == "*")
        elif value == "?" and parts:
            parts[-1].text = False
    while len(frames) > 1:
        part = close()
        frames[-1][1].append(part)
    rule = close()
    return OpenNames(frozenset(rule.names), frozenset(rule.repeated))


def _repeat(parts: list[_Part], *, optional: bool) -> None:
    if parts:
        part = parts[-1]
        if not part.text:
            part.repeated |= part.names
        part.text = part.text and not optional


def _enclosed(parts: list[_Part]) -> _Part:
    """Return a branch as one part, without the names between two fixed texts."""
    texts = [place for place, part in enumerate(parts) if part.text]
    joined = _Part(text=bool(texts))
    for place, part in enumerate(parts):
        if not texts or not texts[0] < place < texts[-1]:
            joined.names |= part.names
            joined.repeated |= part.repeated
    return joined


def _any_of(branches: list[_Part]) -> _Part:
    joined = _Part(text=all(branch.text for branch in branches))
    for branch in branches:
        joined.names |= branch.names
        joined.repeated |= branch.repeated
    return joined
