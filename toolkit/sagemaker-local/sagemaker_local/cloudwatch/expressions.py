"""Metric math, as far as alarms and dashboards use it: operators, functions and SEARCH.

Source: "Using math expressions with CloudWatch metrics" and "CloudWatch search expression syntax" in the
CloudWatch user guide. A function that is not served here is refused, never answered with an empty result.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any


class ExpressionError(ValueError):
    """An expression that does not parse, or that is not supported here."""


@dataclass(frozen=True)
class Line:
    """One time series: values by the start of their period."""

    label: str
    points: Mapping[datetime, float]
    period_s: int


Value = float | str | Line | list[Line]
Search = Callable[[str, str, int], list[Line]]


@dataclass(frozen=True)
class Scope:
    """What an expression can refer to: other queries by id, the queried range, and the search for metrics."""

    lines: Mapping[str, Line | list[Line]]
    metrics: Sequence[Line]
    start: datetime
    end: datetime
    period_s: int
    search: Search


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/^()<>,\[\]]))"
)
# Loosest first; all of a level group to the left.
_LEVELS: tuple[dict[str, Callable[[float, float], float]], ...] = (
    {"OR": lambda a, b: float(bool(a) or bool(b)), "||": lambda a, b: float(bool(a) or bool(b))},
    {"AND": lambda a, b: float(bool(a) and bool(b)), "&&": lambda a, b: float(bool(a) and bool(b))},
    {
        "==": lambda a, b: float(a == b),
        "!=": lambda a, b: float(a != b),
        "<": lambda a, b: float(a < b),
        ">": lambda a, b: float(a > b),
        "<=": lambda a, b: float(a <= b),
        ">=": lambda a, b: float(a >= b),
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: a / b if b else math.nan},
    {"^": lambda a, b: a**b},
)
_POINTWISE: dict[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "LOG": lambda value: math.log(value) if value > 0 else math.nan,
    "LOG10": lambda value: math.log10(value) if value > 0 else math.nan,
}
_OVER: dict[str, Callable[[Sequence[float]], float]] = {
    "AVG": lambda values: sum(values) / len(values),
    "MAX": max,
    "MIN": min,
    "SUM": sum,
    "STDDEV": lambda values: math.sqrt(
        sum((value - sum(values) / len(values)) ** 2 for value in values) / len(values)
    ),
    "METRIC_COUNT": len,
}


def evaluate(expression: str, scope: Scope) -> list[Line]:
    """Return the time series of an expression.

    Raises:
        ExpressionError: it does not parse, names an unknown id, or uses a function that is not served here.
    """
    result = _Parser(_tokens(expression), scope, expression).whole()
    if isinstance(result, str):
        raise ExpressionError(
            f"Error in expression {expression!r}: the result is a string, not a time series"
        )
    if isinstance(result, float):
        return [Line(expression, dict.fromkeys(_grid(scope), result), scope.period_s)]
    return result if isinstance(result, list) else [result]


def names_in(expression: str) -> set[str]:
    """Return the ids and function names of an expression (without the contents of strings)."""
    return {text for kind, text in _tokens(expression) if kind == "name"}


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, place = [], 0
    text = expression.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"Error in expression {expression!r}: unexpected character at {place}")
        found.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        place = match.end()
    return found


class _Parser:
    """Precedence climbing that computes while it reads."""

    def __init__(self, tokens: list[tuple[str, str]], scope: Scope, expression: str) -> None:
        self._tokens = tokens
        self._scope = scope
        self._expression = expression
        self._at = 0

    def whole(self) -> Value:
        value = self._level(0)
        if self._at < len(self._tokens):
            raise self._error(f"unexpected {self._tokens[self._at][1]!r}")
        return value

    def _level(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._unary()
        value = self._level(level + 1)
        while (sign := self._peek()) in _LEVELS[level]:
            self._at += 1
            value = _pairwise(_LEVELS[level][sign], value, self._level(level + 1))
        return value

    def _unary(self) -> Value:
        if self._peek() == "-":
            self._at += 1
            return _pairwise(operator.mul, -1.0, self._unary())
        return self._atom()

    def _atom(self) -> Value:
        if self._at >= len(self._tokens):
            raise self._error("unexpected end")
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return float(text)
        if kind == "text":
            return text[1:-1]
        if text in ("(", "["):
            closing = ")" if text == "(" else "]"
            inside = self._arguments(closing)
            if closing == "]":
                return _flat(inside)
            if len(inside) != 1:
                raise self._error("expected one value between parentheses")
            return inside[0]
        if kind == "name" and self._peek() == "(":
            self._at += 1
            return self._call(text.upper(), self._arguments(")"))
        if text in ("REPEAT", "LINEAR"):  # the two words that FILL takes
            return text
        if kind == "name" and text in self._scope.lines:
            return self._scope.lines[text]
        raise self._error(f"unknown id {text!r}" if kind == "name" else f"unexpected {text!r}")

    def _arguments(self, closing: str) -> list[Value]:
        values: list[Value] = []
        while self._peek() != closing:
            values.append(self._level(0))
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != closing:
                raise self._error(f"expected ',' or {closing!r}")
        self._at += 1
        return values

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            return ""
        kind, text = self._tokens[self._at]
        return "" if kind in ("text", "number") else text

    def _call(self, name: str, given: list[Value]) -> Value:
        scope = self._scope
        try:
            if name in _POINTWISE:
                return _each(
                    given[0], lambda points: {at: float(_POINTWISE[name](v)) for at, v in points.items()}
                )
            if name in _OVER:
                return _over(_OVER[name], given)
            if name == "METRICS":
                wanted = str(given[0]) if given else ""
                return [line for line in scope.metrics if wanted in line.label]
            if name == "SEARCH":
                period = int(_number(given[2])) if len(given) > 2 else scope.period_s
                return scope.search(str(given[0]), str(given[1]), period)
            if name == "FILL":
                return _fill(given[0], given[1], scope)
            if name == "IF":
                return _if(given[0], given[1], given[2] if len(given) > 2 else None, scope)
            if name == "PERIOD":
                return float(_first(given[0]).period_s)
            if name == "TIME_SERIES":
                return Line(name, dict.fromkeys(_grid(scope), _number(given[0])), scope.period_s)
            if name in ("DIFF", "RATE", "RUNNING_SUM"):
                return _each(given[0], lambda points: _STEPPED[name](points))
        except IndexError:
            raise self._error(f"{name} needs more arguments") from None
        raise self._error(f"the function {name} is not supported by the local CloudWatch")

    def _error(self, what: str) -> ExpressionError:
        return ExpressionError(f"Error in expression {self._expression!r}: {what}")


def _pairwise(work: Callable[[float, float], float], left: Value, right: Value) -> Value:
    """Combine point by point; a series lacks a point where either side lacks it."""
    if isinstance(left, str) or isinstance(right, str):
        raise ExpressionError("Error in expression: a string cannot be used in arithmetic")
    if isinstance(left, float) and isinstance(right, float):
        return float(work(left, right))
    if isinstance(left, float):
        return _each(right, lambda points: _clean({at: work(left, value) for at, value in points.items()}))
    if isinstance(right, float):
        return _each(left, lambda points: _clean({at: work(value, right) for at, value in points.items()}))
    if isinstance(left, list):
        return [_join(work, one, right if isinstance(right, Line) else _first(right)) for one in left]
    if isinstance(right, list):
        return [_join(work, left, one) for one in right]
    return _join(work, left, right)


def _join(work: Callable[[float, float], float], left: Line, right: Line) -> Line:
    points = {at: work(value, right.points[at]) for at, value in left.points.items() if at in right.points}
    return Line(left.label, _clean(points), left.period_s)


def _clean(points: Mapping[datetime, float]) -> dict[datetime, float]:
    return {at: float(value) for at, value in points.items() if not math.isnan(value)}


def _each(value: Value, work: Callable[[Mapping[datetime, float]], Mapping[datetime, float]]) -> Value:
    if isinstance(value, list):
        return [Line(line.label, _clean(work(line.points)), line.period_s) for line in value]
    if isinstance(value, Line):
        return Line(value.label, _clean(work(value.points)), value.period_s)
    if isinstance(value, float):
        return next(iter(work({datetime.min: value}).values()))
    raise ExpressionError(f"Error in expression: {value!r} is not a time series")


def _over(work: Callable[[Sequence[float]], float], given: list[Value]) -> Value:
    """One series: its statistic, a scalar. An array: the statistic across its series at each time."""
    if len(given) == 1 and isinstance(given[0], Line):
        values = list(given[0].points.values())
        return float(work(values)) if values else math.nan
    lines = _flat(given)
    times = sorted({at for line in lines for at in line.points})
    points = {at: float(work([line.points[at] for line in lines if at in line.points])) for at in times}
    return Line("across", points, lines[0].period_s if lines else 60)


def _flat(values: Sequence[Value]) -> list[Line]:
    lines: list[Line] = []
    for value in values:
        if isinstance(value, list):
            lines += value
        elif isinstance(value, Line):
            lines.append(value)
        else:
            raise ExpressionError(f"Error in expression: {value!r} is not a time series")
    return lines


def _fill(value: Value, filler: Value, scope: Scope) -> Value:
    """Fill missing periods of a series. A metric without any data gives nothing to fill (assumed)."""

    def filled(points: Mapping[datetime, float]) -> Mapping[datetime, float]:
        if not points:
            return points
        out, last = {}, None
        for at in _grid(scope):
            last = points.get(at, last)
            if at in points:
                out[at] = points[at]
            elif filler == "REPEAT":
                if last is not None:
                    out[at] = last
            else:
                out[at] = _number(filler)
        return out

    if filler == "LINEAR":
        raise ExpressionError("Error in expression: FILL(…, LINEAR) is not supported by the local CloudWatch")
    return _each(value, filled)


def _if(condition: Value, yes: Value, no: Value | None, scope: Scope) -> Value:
    if isinstance(condition, float):
        return yes if condition else (math.nan if no is None else no)
    line = _first(condition)
    points: dict[datetime, float] = {}
    for at, value in line.points.items():
        chosen = yes if value else no
        if isinstance(chosen, Line):
            if at in chosen.points:
                points[at] = chosen.points[at]
        elif chosen is not None:
            points[at] = _number(chosen)
    return Line(line.label, points, line.period_s)


def _first(value: Value) -> Line:
    lines = _flat([value])
    if not lines:
        raise ExpressionError("Error in expression: no time series found")
    return lines[0]


def _number(value: Any) -> float:
    if not isinstance(value, float):
        raise ExpressionError(f"Error in expression: expected a number, found {value!r}")
    return value


def _grid(scope: Scope) -> list[datetime]:
    step, found, at = timedelta(seconds=scope.period_s), [], scope.start
    while at < scope.end:
        found.append(at)
        at += step
    return found


def _diff(points: Mapping[datetime, float]) -> Mapping[datetime, float]:
    times = sorted(points)
    return {at: points[at] - points[before] for before, at in pairwise(times)}


def _rate(points: Mapping[datetime, float]) -> Mapping[datetime, float]:
    times = sorted(points)
    return {
        at: (points[at] - points[before]) / (at - before).total_seconds() for before, at in pairwise(times)
    }


def _running_sum(points: Mapping[datetime, float]) -> Mapping[datetime, float]:
    total, out = 0.0, {}
    for at in sorted(points):
        total += points[at]
        out[at] = total
    return out


_STEPPED: dict[str, Callable[[Mapping[datetime, float]], Mapping[datetime, float]]] = {
    "DIFF": _diff,
    "RATE": _rate,
    "RUNNING_SUM": _running_sum,
}
