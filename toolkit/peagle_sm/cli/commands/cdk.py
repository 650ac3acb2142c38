"""`peagle-sm cdk`: the stacks of this project, for those who installed the wheel."""

from __future__ import annotations

import os
from pathlib import Path

import click

from peagle_sm.cli.lazy import Command, Entry, LazyGroup
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State

ENTRIES = (Entry("init", f"{__name__}:init", "Write the CDK app into a folder."),)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def cdk() -> None:
    """Write the CDK app, to deploy the stacks yourself."""


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("."))
@global_options
@click.pass_obj
def init(state: State, folder: Path) -> None:
    """Write the CDK app into a folder.

    Writes app.py, cdk.json, requirements.txt, package.json, stacks/ and container/ to FOLDER (default: this
    folder). From a clone of the project none of this is needed: its own app.py is the same.
    """
    from peagle_sm.service.planning.cdk_project import write_project

    written = write_project(folder)
    place = f"cd {folder}\n" if str(folder) != "." else ""
    spec = os.path.relpath("peagle.yaml", folder)  # where `peagle-sm init` writes it
    emit(
        state,
        table=lambda: (
            f"wrote {', '.join(path.name for path in written)} to {folder}\n\nnext:\n{place}"
            "pip install -r requirements.txt\nnpm ci\n"
            f"npx cdk deploy PeagleGuard Peagle-<name> -c spec={spec}"
        ),
        data=lambda: {"folder": str(folder), "written": [str(path) for path in written]},
        names=[str(path) for path in written],
    )
