"""What the image is built from: hadolint, and what this project asks of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from check_base import fault, tag
from peagle_sm.core.catalog import load_catalog
from sagemaker_local.paths import container_dir

CONTAINER = container_dir()
DOCKERFILE = (CONTAINER / "Dockerfile").read_text(encoding="utf-8")
DIGEST = "sha256:" + "0a" * 32


def of(name: str, text: str = DOCKERFILE) -> list[str]:
    """The texts of the instructions with a name, continuation lines joined."""
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()[1:]) for line in lines if line.split()[:1] == [name]]


def hadolint(text: str) -> list[str]:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [program, "--no-color", "--format", "json", "-"], input=text, capture_output=True, text=True
    )
    return [
        f"{finding['code']} line {finding['line']}: {finding['message']}"
        for finding in json.loads(done.stdout)
    ]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.train"])
def test_an_image_is_of_its_base_and_of_what_is_sent(name: str) -> None:
    text = (CONTAINER / name).read_text(encoding="utf-8")
    assert hadolint(text) == []
    assert of("FROM", text) == ["${BASE_IMAGE}"]
    # asked for, without a default, before and after FROM
    assert [words for words in of("ARG", text) if words.startswith("BASE_IMAGE")] == ["BASE_IMAGE"] * 2
    copied = [word for words in of("COPY", text) for word in words.split()[:-1] if not word.startswith("--")]
    assert [name for name in copied if not (CONTAINER / name).exists()] == []
    ignored = CONTAINER / (".dockerignore" if name == "Dockerfile" else f"{name}.dockerignore")
    sent = ignored.read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == set(copied)
    assert of("ADD", text) == [], "nothing is pulled but the base"


def test_hadolint_would_find_a_pipe_into_a_shell_without_pipefail() -> None:
    result = hadolint(DOCKERFILE + "\nRUN wget -qO- https://example.com/x | sh\n")
    assert any(line.startswith("DL4006") for line in result)


def test_the_build_looks_at_the_base_before_anything_else() -> None:
    (run,) = of("RUN")
    assert run.startswith('python3 check_base.py "${BASE_IMAGE}" "${VLLM_FLOOR}" &&')


def test_the_floor_is_the_catalogues() -> None:
    assert f"VLLM_FLOOR={load_catalog().images.advisory_floor.version}" in of("ARG")


def test_signals_reach_the_server_and_sagemaker_finds_its_port() -> None:
    assert of("ENTRYPOINT") == ['["/opt/peagle/serve"]']
    assert of("CMD") == []
    assert of("EXPOSE") == ["8080"]
    assert of("HEALTHCHECK") == [], "SageMaker asks /ping itself"


def test_all_that_serve_imports_is_copied() -> None:
    copied = {word for text in of("COPY") for word in text.split()[:-1]}
    imports = re.findall(r"^from (\w+)", (CONTAINER / "serve").read_text(encoding="utf-8"), re.MULTILINE)
    ours = {name for name in imports if (CONTAINER / name).exists() or (CONTAINER / f"{name}.py").exists()}
    assert ours <= {name.removesuffix(".py") for name in copied}


def test_no_parser_of_the_dockerfile_is_pulled() -> None:
    assert "# syntax=" not in DOCKERFILE.splitlines()[0]


@pytest.mark.parametrize(
    ("base", "installed", "words"),
    [
        (f"vllm/vllm-openai@{DIGEST}", "0.33.0", None),
        (f"public.ecr.aws/x/vllm@{DIGEST}", "0.40.0+cu130", None),
        (f"localhost:5000/vllm@{DIGEST}", "1.0", None),
        ("vllm/vllm-openai:v0.33.0", "0.33.0", "allowed: REPOSITORY@sha256"),
        (f"vllm/vllm-openai:v0.33.0@{DIGEST[:-1]}", "0.33.0", "allowed: REPOSITORY@sha256"),
        ("", "0.33.0", "BASE_IMAGE: found ''"),
        (f"vllm/vllm-openai@{DIGEST}", "0.32.9", "vLLM 0.32.9; allowed: 0.33.0 and later"),
        (f"vllm/vllm-openai@{DIGEST}", "", "has no vLLM"),
    ],
)
def test_a_base_that_will_not_do_ends_the_build(base: str, installed: str, words: str | None) -> None:
    wrong = fault(base, installed, "0.33.0")
    assert (wrong is None) if words is None else (wrong is not None and words in wrong)


def test_the_tag_of_an_image_tells_the_plan_its_versions() -> None:
    beginning = tag("0.33.0+cu130", "2.13.0+cu130")
    image = f"111122223333.dkr.ecr.x.amazonaws.com/peagle-sm/vllm:{beginning}-7"
    facts = load_catalog().images.describe(image)
    assert (beginning, facts.version, facts.cuda) == ("0.33.0-cu130", (0, 33, 0), "13.0")
    assert tag("0.33.0", "2.13.0") == "0.33.0"


def test_the_build_pins_the_base_by_the_digest_that_docker_shows(tmp_path: Path) -> None:
    spec = yaml.safe_load((CONTAINER / "buildspec.yml").read_text(encoding="utf-8"))
    commands = spec["phases"]["pre_build"]["commands"][1:4]
    docker = tmp_path / "docker"
    docker.write_text(
        f"#!/bin/sh\nprintf 'Name:      x\\nDigest:    {DIGEST}\\n\\nManifests:\\n  Digest: none\\n'\n"
    )
    docker.chmod(0o755)
    for base in ("vllm/vllm-openai:v0.33.0", f"vllm/vllm-openai:v0.33.0@{DIGEST}"):
        done = subprocess.run(
            ["bash", "-c", "\n".join([*commands, 'printf "%s" "$PINNED"'])],
            env={**os.environ, "BASE_IMAGE": base, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"vllm/vllm-openai@{DIGEST}"


def test_the_check_is_a_command_that_fails() -> None:
    command = [sys.executable, str(CONTAINER / "check_base.py"), f"x@{DIGEST}", "0.33.0"]
    done = subprocess.run(command, capture_output=True, text=True)  # this environment has no vLLM
    assert (done.returncode, done.stderr) == (1, "error: the base image has no vLLM\n")


def test_the_build_has_no_secret_and_pushes_what_sagemaker_can_read() -> None:
    spec = yaml.safe_load((CONTAINER / "buildspec.yml").read_text(encoding="utf-8"))
    commands = [text for phase in spec["phases"].values() for text in phase["commands"]]
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    build = next(text for text in commands if "buildx build" in text)
    assert {"--provenance=false", "--sbom=false", "type=docker"} <= set(build.split())
    assert "--password-stdin" in next(text for text in commands if "docker login" in text)
    assert not any("--password " in text or "secret" in text.lower() for text in commands)
    assert all(phase["on-failure"] == "ABORT" for phase in spec["phases"].values())
    assert commands.index(build) < next(
        n for n, text in enumerate(commands) if text.startswith("docker push")
    )
