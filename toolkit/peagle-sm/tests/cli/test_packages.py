"""Commands of the other packages: each has an entry point, and names its package where that is missing."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from peagle_sm.cli.app import ENTRIES
from peagle_sm.cli.base import Entry, LazyGroup
from peagle_sm.core.errors import NotFound


def test_the_table_of_commands_has_the_entry_points_of_each_package(root: Path) -> None:
    of_packages = {entry.name: entry.target for entry in ENTRIES if ":" not in entry.target}
    declared = {}
    for package in ("peagle-bench", "peagle-learn"):
        project = tomllib.loads((root / "toolkit" / package / "pyproject.toml").read_text())["project"]
        declared.update(dict.fromkeys(project["entry-points"]["peagle_sm.commands"], package))
    assert of_packages == declared
    assert {point.name for point in entry_points(group="peagle_sm.commands")} == declared.keys()


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("peagle-bench", "pip install ./toolkit/peagle-bench"),
        ("peagle-learn", "pip install ./toolkit/peagle-bench ./toolkit/peagle-learn"),
    ],
)
def test_a_command_whose_package_is_missing_says_how_to_install_it(package: str, command: str) -> None:
    group = LazyGroup(name="peagle-sm", entries=[Entry("no-such-command", package, "Do something.")])
    with pytest.raises(NotFound, match=package) as raised:
        group.get_command(click.Context(group), "no-such-command")
    assert str(raised.value.next_step).endswith(command)
