"""Rules over what ships that neither checkov nor cdk-nag nor hadolint has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.checks.environment import SECRET_NAME, SECRET_VALUE
from peagle_sm.core.engines import load_forbidden
from peagle_sm.core.heads.reading import code_faults, file_faults
from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.paths import container_dir
from tests.rules.files import ROOT, project_files
from tests.stacks.support import EXAMPLES, template

CONTAINER = container_dir()
DOCKERFILES = [
    pytest.param(path.read_text(encoding="utf-8"), id=path.name)
    for path in sorted(CONTAINER.glob("Dockerfile*"))
    if path.suffix != ".dockerignore"
]
WEIGHTS = ROOT / "toolkit/sagemaker-local/sagemaker_local/weights"
FORBIDDEN = load_forbidden()


def models(stack: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The CreateModel requests of a template, also those that the guard's function sends."""
    for resource in stack["Resources"].values():
        if resource["Type"] == "AWS::SageMaker::Model":
            yield resource["Properties"]
        if resource["Type"] == "Custom::PeagleModel":
            payload = resource["Properties"]["Payload"]
            text = payload["Fn::Sub"] if isinstance(payload, dict) else payload
            yield json.loads(text[0] if isinstance(text, list) else text)


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def requests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    rows = list(models(template(load_spec(request.param).name)))
    assert rows, "no model: this test no longer sees what it is about"
    return rows


def test_each_model_is_isolated_from_the_network(requests: list[dict[str, Any]]) -> None:
    assert [request for request in requests if request.get("EnableNetworkIsolation") is not True] == []


def test_no_model_has_an_image_that_moves(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        image = request["PrimaryContainer"]["Image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        assert tag not in ("", "latest", "stable", "main", "nightly"), image


def opening(environment: dict[str, Any]) -> list[str]:
    """The variables that open the engine or hold a secret."""
    return [
        name
        for name, value in environment.items()
        if ((entry := FORBIDDEN.setting(name, str(value))) and not entry.gate_only)
        or (SECRET_NAME.search(name.upper()) and not name.upper().endswith("TOKENS"))
        or SECRET_VALUE.search(str(value))
    ]


def test_no_environment_of_a_model_opens_the_engine_or_has_a_secret(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        assert opening(request["PrimaryContainer"].get("Environment", {})) == []


def test_such_environments_are_found() -> None:
    planted = {
        "SM_VLLM_TRUST_REMOTE_CODE": "true",
        "VLLM_SERVER_DEV_MODE": "1",
        "DB_PASSWORD": "x",
        "X": "hf_" + "a" * 30,
    }
    assert opening(planted) == list(planted)
    assert opening({"VLLM_SERVER_DEV_MODE": "0", "MAX_TOKENS": "5"}) == []


@pytest.mark.parametrize("text", DOCKERFILES)
def test_no_image_opens_the_engine_or_has_a_secret(text: str) -> None:
    assert opening(dict(re.findall(r"(\w+)=(\S*)", text))) == []
    flags = {
        "--" + name.replace("_", "-")
        for name, entry in FORBIDDEN.arguments.items()
        if not (entry.gate_only or entry.keys or entry.dotted)
    }
    assert [flag for flag in flags if flag in text] == []


@pytest.mark.parametrize("text", DOCKERFILES)
def test_the_base_of_an_image_is_an_argument_that_the_build_holds_to_a_digest(text: str) -> None:
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == ["${BASE_IMAGE}"]
    assert set(re.findall(r"^ARG BASE_IMAGE(.*)$", text, re.MULTILINE)) == {""}
    (run,) = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    assert run.startswith('python3 check_base.py "${BASE_IMAGE}"')


@pytest.mark.parametrize("text", DOCKERFILES)
def test_what_an_image_installs_has_hashes_and_nothing_is_downloaded(text: str) -> None:
    commands = re.split(r"&&|;|\n", text.replace("\\\n", " "))
    installs = [command for command in commands if re.search(r"\bpip3? (install|wheel|download)\b", command)]
    assert [each for each in installs if not re.search("--require-hashes|--no-index", each)] == []
    assert re.findall(r"\b(?:curl|wget|uv pip)\b|^ADD", text, re.MULTILINE) == []


def test_the_serving_image_does_not_run_as_root() -> None:
    """The others do: SageMaker's folders below /opt/ml belong to root in a job's container."""
    text = (CONTAINER / "Dockerfile").read_text(encoding="utf-8")
    user = re.findall(r"^USER \$\{(\w+)\}$", text, re.MULTILINE)[-1]
    (number,) = re.findall(rf"^ARG {user}=(\d+)", text, re.MULTILINE)
    assert int(number) > 0


def unsafe_weights(folder: Path) -> list[str]:
    """What can run code in a folder of weights, by the rules of `peagle-sm heads check`."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    faults = list(file_faults(sizes))
    for path in folder.glob("*.json"):
        faults += code_faults(path.name, json.loads(path.read_text(encoding="utf-8")), sizes)
    return [fault.message for fault in faults if fault.severity == "error"]


def test_no_weights_that_ship_can_run_code() -> None:
    folders = [Path(path) for path, below, _ in os.walk(WEIGHTS) if not below]
    assert folders
    assert [fault for folder in folders for fault in unsafe_weights(folder)] == []


@pytest.mark.parametrize("name", ["modeling.py", "pytorch_model.bin", "weights.pkl"])
def test_weights_that_run_code_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    assert unsafe_weights(tmp_path) == []
    (tmp_path / name).write_bytes(b"")
    assert [fault for fault in unsafe_weights(tmp_path) if name in fault]


def test_no_file_of_the_project_has_a_secret() -> None:
    for name in project_files():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        assert not SECRET_VALUE.search(text), name
