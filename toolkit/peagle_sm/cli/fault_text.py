"""The faults that are set on a local server, in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peagle_sm.cli.table import render_table

_COMMON = ("id", "kind", "endpoint", "operation", "times", "probability", "seed", "struck", "left")


def render_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    """One row a fault, oldest first: the one that strikes before the others."""
    if not faults:
        return "no fault is set"
    headers = ("id", "kind", "endpoint", "operation", "options", "struck", "left")
    return render_table(headers, [_row(fault) for fault in faults], right=("struck", "left"))


def _row(fault: Mapping[str, Any]) -> tuple[str, ...]:
    left = "∞" if fault["left"] is None else str(fault["left"])
    operation = fault["operation"] or "all"
    return (
        fault["id"],
        fault["kind"],
        fault["endpoint"],
        operation,
        _options(fault),
        str(fault["struck"]),
        left,
    )


def _options(fault: Mapping[str, Any]) -> str:
    own = [f"{name}={_shown(value)}" for name, value in fault.items() if name not in _COMMON]
    if fault["probability"] != 1:
        own.append(f"probability={fault['probability']:g}")
    if fault["seed"]:
        own.append(f"seed={fault['seed']}")
    return " ".join(own) or "-"


def _shown(value: Any) -> str:
    if isinstance(value, str) and " " in value:
        return f"'{value}'"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
