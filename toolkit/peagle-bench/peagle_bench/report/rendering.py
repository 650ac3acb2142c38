"""Rendering of the page's templates, with autoescape; the only module that uses Jinja2.

A float is written with at most two decimals: coordinates need no more.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from peagle_bench.report import formatting

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """Render a file of the folder ``templates``."""
    return _environment().get_template(template).render(values)


class Rendered:
    """Base of the page's data: ``{{ it }}`` in any template renders it by the template of its class."""

    template: ClassVar[str]

    def __html__(self) -> str:
        return render(self.template, it=self)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        finalize=_written,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    environment.globals.update(axis=formatting.axis, number=formatting.number)
    return environment


def _written(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return "" if value is None else value


def _unbroken(markup: str) -> str:
    """Use non-breaking hyphens in the modes' names in text; attributes stay unchanged."""
    changed = re.sub(
        r"(<[^>]*>)|P-EAGLE|EAGLE-3|n-gram",
        lambda match: match[1] or match[0].replace("-", "\N{NON-BREAKING HYPHEN}"),
        markup,
    )
    return type(markup)(changed)  # Markup, which is not escaped again
