"""The list of what the image holds: valid CycloneDX, the same each time, nothing left out."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from peagle_sm.core.catalog import load_catalog
from sagemaker_local.paths import container_dir
from sbom import document, locked, python_component, tag

SBOM = container_dir() / "sbom.py"
LOCK = container_dir() / "engine-cpu.lock"


def written(*arguments: str) -> str:
    done = subprocess.run([sys.executable, SBOM, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("arguments", [(), (str(LOCK),)], ids=["installed", "locked"])
def test_it_is_valid_cyclonedx_and_the_same_each_time(arguments: tuple[str, ...]) -> None:
    text = written(*arguments)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert written(*arguments) == text


def test_every_package_of_a_lock_is_in_it_with_its_hashes() -> None:
    text = LOCK.read_text(encoding="utf-8")
    named = [line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    found = document("x", locked(text))["components"]
    assert len(found) == len(named) > 100
    assert sum(len(component.get("hashes", [])) for component in found) == len(
        {line.strip(" \\") for line in text.splitlines() if "--hash=" in line}
    )


def test_what_is_installed_here_is_in_it() -> None:
    told = {component["purl"] for component in json.loads(written())["components"]}
    assert f"pkg:pypi/boto3@{version('boto3')}" in told
    assert any(purl.startswith("pkg:deb/") for purl in told) or not Path("/var/lib/dpkg/status").exists()


def test_the_serial_number_follows_from_the_content() -> None:
    one = document("x", [python_component("A.b", "1")])
    assert one["components"][0]["purl"] == "pkg:pypi/a-b@1"
    assert one["serialNumber"] == document("x", [python_component("a_b", "1")] * 2)["serialNumber"]
    assert one["serialNumber"] != document("x", [python_component("a-b", "2")])["serialNumber"]


def test_the_tag_of_an_image_tells_the_plan_its_versions(tmp_path: Path) -> None:
    listed = [python_component("vllm", "0.33.0+cu130"), python_component("torch", "2.13.0+cu130")]
    (tmp_path / "sbom.json").write_text(json.dumps(document("x", listed)))
    beginning = written("--tag", str(tmp_path / "sbom.json")).strip()
    facts = load_catalog().images.describe(
        f"111122223333.dkr.ecr.x.amazonaws.com/peagle-sm/vllm:{beginning}-7"
    )
    assert (beginning, facts.version, facts.cuda) == ("0.33.0-cu130", (0, 33, 0), "13.0")
    assert tag(document("x", [python_component("vllm", "0.33.0")])) == "0.33.0"
