"""AIPerf's environment: what the lock pins, and how AIPerf finds this package's transport in a checkout."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import yaml

import peagle_sm
from sagemaker_local.engine.aiperf_env import LOCK, aiperf_version, plugin_path
from scripts.lib.locks import read_pins


def test_the_lock_pins_every_package_and_names_the_version() -> None:
    names = {pin.key for pin in read_pins(LOCK.read_text())}
    assert len(names) > 100
    assert aiperf_version() == "0.13.0"
    assert "botocore" in names, "the transport signs with it"


ENTRY_POINT = "peagle-sm = peagle_sm.aiperf:plugins.yaml"
PACKAGE = Path(peagle_sm.__file__).parent


def test_a_job_sees_the_plugin_and_nothing_else_of_this_environment(tmp_path: Path) -> None:
    folder = plugin_path(tmp_path / "plugin")
    assert plugin_path(folder) == folder, "made again where it is there already"
    (found,) = distributions(path=[str(folder)])
    (entry,) = found.entry_points
    assert (entry.group, f"{entry.name} = {entry.value}") == ("aiperf.plugins", ENTRY_POINT)
    assert (folder / "peagle_sm").resolve() == PACKAGE


def test_the_entry_point_of_the_package_is_the_same_and_leads_to_the_class(root: Path) -> None:
    project = tomllib.loads((root / "toolkit/peagle-sm/pyproject.toml").read_text())["project"]
    name, value = ENTRY_POINT.split(" = ")
    assert project["entry-points"]["aiperf.plugins"] == {name: value}
    module, file = value.split(":")
    assert module == "peagle_sm.aiperf"
    transport = yaml.safe_load((PACKAGE / "aiperf" / file).read_text())["transport"]["sagemaker"]
    source = (PACKAGE / "aiperf" / "transport.py").read_text()
    assert transport["class"] == "peagle_sm.aiperf.transport:SageMakerTransport"
    assert "class SageMakerTransport(" in source
