"""Metric math, as far as alarms and dashboards here use it: operators, IF and FILL.

Source: "Using math expressions with CloudWatch metrics" in the CloudWatch user guide. The syntax is read by
Python's own parser. What is not served is refused, never answered with an empty result.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


class ExpressionError(ValueError):
    """An expression that does not parse, or that is not supported here."""


@dataclass(frozen=True)
class Line:
    """One time series: values by the start of their period."""

    label: str
    points: Mapping[datetime, float]
    period_s: int


Value = float | Line


@dataclass(frozen=True)
class Scope:
    """What an expression can refer to: other queries by id, and the queried range."""

    lines: Mapping[str, Line]
    start: datetime
    end: datetime
    period_s: int

    @property
    def periods(self) -> list[datetime]:
        """The start of each period of the range."""
        count = math.ceil((self.end - self.start).total_seconds() / self.period_s)
        return [self.start + timedelta(seconds=self.period_s * place) for place in range(count)]


_OPERATORS: Mapping[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b if b else math.nan,
    ast.Pow: operator.pow,
    ast.And: lambda a, b: float(bool(a) and bool(b)),
    ast.Or: lambda a, b: float(bool(a) or bool(b)),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}
_PYTHON = {"AND": " and ", "&&": " and ", "OR": " or ", "||": " or ", "^": "**"}


def evaluate(expression: str, scope: Scope) -> Line:
    """Return the time series of an expression.

    Raises:
        ExpressionError: it does not parse, names an unknown id, or uses a function that is not served here.
    """
    try:
        value = _value(_parsed(expression), scope)
    except ExpressionError as error:
        raise ExpressionError(f"Error in expression {expression!r}: {error}") from None
    if isinstance(value, float):
        return Line(expression, dict.fromkeys(scope.periods, value), scope.period_s)
    return value


def names_in(expression: str) -> set[str]:
    """Return the ids and function names of an expression."""
    return {node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)}


def _parsed(expression: str) -> ast.expr:
    text = re.sub(r"\bAND\b|\bOR\b|&&|\|\||\^", lambda match: _PYTHON[match[0]], expression)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ExpressionError(f"Error in expression {expression!r}: {error}") from None


def _value(node: ast.expr, scope: Scope) -> Value:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in scope.lines:
            return scope.lines[name]
        case ast.Name(id=name):
            raise ExpressionError(f"unknown id {name!r}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _pairwise(operator.mul, -1.0, _value(operand, scope))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _pairwise(_OPERATORS[type(sign)], _value(left, scope), _value(right, scope))
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPERATORS:
            return _pairwise(_OPERATORS[type(sign)], _value(left, scope), _value(right, scope))
        case ast.BoolOp(op=sign, values=[first, *others]):
            value = _value(first, scope)
            for other in others:
                value = _pairwise(_OPERATORS[type(sign)], value, _value(other, scope))
            return value
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name.upper(), arguments, scope)
    raise ExpressionError(f"{ast.unparse(node)} is not supported by the local CloudWatch")


def _call(name: str, arguments: Sequence[ast.expr], scope: Scope) -> Value:
    match name, arguments:
        case "IF", [condition, yes, *no] if len(no) <= 1:
            chosen = [_value(each, scope) for each in (yes, *no)]
            return _if(_value(condition, scope), chosen[0], chosen[1] if no else None)
        case "FILL", [series, filler]:
            value = _value(filler, scope)
            if not isinstance(value, float):
                raise ExpressionError("FILL takes a number")
            return _fill(_value(series, scope), value, scope)
    raise ExpressionError(f"{name} with these arguments is not supported by the local CloudWatch")


def _pairwise(work: Callable[[float, float], float], left: Value, right: Value) -> Value:
    """Combine point by point; a series lacks a point where either side lacks it."""
    if isinstance(left, float) and isinstance(right, float):
        return float(work(left, right))
    if isinstance(left, float):
        line = _line(right)
        points = {at: work(left, value) for at, value in line.points.items()}
    elif isinstance(right, float):
        line = left
        points = {at: work(value, right) for at, value in line.points.items()}
    else:
        line = left
        points = {
            at: work(value, right.points[at]) for at, value in line.points.items() if at in right.points
        }
    known = {at: float(value) for at, value in points.items() if not math.isnan(value)}
    return Line(line.label, known, line.period_s)


def _fill(value: Value, filler: float, scope: Scope) -> Value:
    """Fill missing periods of a series. A metric without any data gives nothing to fill (assumed)."""
    line = _line(value)
    if not line.points:
        return line
    points = {at: line.points.get(at, filler) for at in scope.periods}
    return Line(line.label, points, line.period_s)


def _if(condition: Value, yes: Value, no: Value | None) -> Value:
    if isinstance(condition, float):
        return yes if condition else (math.nan if no is None else no)
    points: dict[datetime, float] = {}
    for at, value in condition.points.items():
        chosen = yes if value else no
        if isinstance(chosen, Line):
            if at in chosen.points:
                points[at] = chosen.points[at]
        elif chosen is not None:
            points[at] = chosen
    return Line(condition.label, points, condition.period_s)


def _line(value: Value) -> Line:
    if isinstance(value, float):
        raise ExpressionError(f"{value!r} is not a time series")
    return value
