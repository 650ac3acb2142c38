"""`peagle-sm schema`."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import to_json


@click.command(cls=Command)
@global_options
def schema() -> None:
    """Print the JSON schema of peagle.yaml."""
    from peagle_sm.core.spec.endpoint_spec import json_schema

    click.echo(to_json(json_schema()))
