"""The SPEC argument that plan, deploy and update share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec

spec_argument = click.argument(
    "spec_path", metavar="[SPEC]", default="peagle.yaml", type=click.Path(path_type=Path, dir_okay=False)
)


def given(path: Path) -> str:
    """The spec as words of a suggested command, with a leading blank; nothing for the usual one."""
    from shlex import quote

    return "" if str(path) == "peagle.yaml" else f" {quote(str(path))}"


def read_spec(path: Path) -> EndpointSpec:
    """The spec in a file; `-` reads stdin.

    Raises:
        SpecError: the file cannot be read, or has a bad field.
    """
    from peagle_sm.core.spec.endpoint_spec import load_spec, parse_spec

    if str(path) == "-":
        return parse_spec(sys.stdin.read(), "stdin")
    return load_spec(path)
