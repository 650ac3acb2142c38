"""Results on stdout, in the format that was asked for; notes for people on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from peagle_sm.cli import terminal
from peagle_sm.cli.state import State


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON text; what JSON does not know is printed as text (times in ISO 8601)."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def emit(state: State, *, table: Callable[[], str], data: Callable[[], Any], names: Iterable[str]) -> None:
    """Print one result: `table` for people, `data` as JSON, or `names`, one a line."""
    if state.format == "json":
        click.echo(to_json(data()))
    elif state.format == "quiet":
        for name in names:
            click.echo(name)
    else:
        with terminal.tables_fit(sys.stdout):
            text = table()
        say(text, err=False)


def say(text: str, *, err: bool = True) -> None:
    """Print text for people, fitted to the terminal and coloured; on stderr unless ``err`` is False."""
    click.echo(terminal.shown(text, sys.stderr if err else sys.stdout), err=err)


def note(state: State, message: str) -> None:
    """A line on stderr: text, a JSON object on one line with --format json, nothing with quiet."""
    if state.format == "json":
        click.echo(to_json({"note": message}, indent=None), err=True)
    elif state.format != "quiet":
        say(message)
