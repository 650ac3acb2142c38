"""What the measuring commands share: lists of numbers, and the packages that they need."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _Type = click.ParamType[Any]  # generic since click 8.2; we run with 8.1 too
else:
    _Type = click.ParamType

PACKAGES = ("aiohttp", "uvloop", "psutil")


class Numbers(_Type):
    """``1,8,32``: positive numbers with commas between them, each once."""

    def __init__(self, *, whole: bool) -> None:
        """``whole`` allows whole numbers only."""
        self.name = "list"
        self._whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of int or float; tuples pass as they are."""
        if isinstance(value, tuple):
            return value
        kind = int if self._whole else float
        try:
            numbers = tuple(kind(word) for word in str(value).split(",") if word.strip())
        except ValueError:
            numbers = ()
        if not numbers or len(set(numbers)) < len(numbers) or not all(0 < each < 1e6 for each in numbers):
            what = "whole numbers" if self._whole else "numbers"
            self.fail(
                f"{value!r}: write {what} above 0 with commas between them, each once: 1,8,32", param, ctx
            )
        return numbers


def need_measure_extra(packages: Sequence[str] = PACKAGES) -> None:
    """Say what to install when the extra `measure` is not there.

    Raises:
        NotFound: a package of the extra is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        from peagle_sm.core.errors import NotFound

        raise NotFound(
            f"measuring needs {' and '.join(missing)}, which this Python does not have",
            next_step='pip install "peagle-sm[measure]"',
            details={"missing": missing},
        )
