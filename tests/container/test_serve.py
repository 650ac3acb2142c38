"""`serve` as the image and the local engine run it, with a stand-in for vLLM that tells its arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_local.engine.output import last_words
from sagemaker_local.paths import container_dir

SERVE = container_dir() / "serve"
GATE = [
    *("--shutdown-timeout", "25"),
    *("--override-generation-config", '{"max_new_tokens": 32768}'),
    *("--middleware", "peagle_gate.asgi.Gate"),
]


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A directory with a package `vllm` whose server prints its process id and arguments."""
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(
        "import json, os, sys\nprint(json.dumps([os.getpid(), *sys.argv[1:]]))\n"
    )
    return tmp_path


def run(server: Path, **environ: str) -> tuple[int, list[str], str]:
    process, out, err = finished(server, **environ)
    assert process.returncode == 0, err
    pid, *args = json.loads(out)
    assert pid == process.pid, "the server must take the place of serve, so that signals reach it"
    return pid, args, err


def finished(server: Path, **environ: str) -> tuple[subprocess.Popen[str], str, str]:
    process = subprocess.Popen(
        [sys.executable, str(SERVE)],
        env={"PYTHONPATH": str(server), "PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=60)
    return process, out, err


def test_arguments_come_from_the_environment(server: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    _, args, err = run(server, PEAGLE_SM_MODEL_DIR=str(model), SM_VLLM_ENFORCE_EAGER="true")
    assert args == ["--port", "8080", "--model", str(model), "--enforce-eager", *GATE]
    assert "serve: vLLM server arguments:" in err


def test_without_a_model_it_says_so(server: Path, tmp_path: Path) -> None:
    _, args, err = run(server, PEAGLE_SM_MODEL_DIR=str(tmp_path / "absent"))
    assert args == ["--port", "8080", *GATE]
    assert "serve: no model: SM_VLLM_MODEL and HF_MODEL_ID are not set" in err


def test_without_the_gate_the_arguments_are_those_of_the_aws_image(server: Path, tmp_path: Path) -> None:
    _, args, _ = run(server, PEAGLE_SM_MODEL_DIR=str(tmp_path / "absent"), PEAGLE_GATE="off")
    assert args == ["--port", "8080"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SM_VLLM_TRUST_REMOTE_CODE", "true", "--trust-remote-code"),
        ("VLLM_SERVER_DEV_MODE", "1", "VLLM_SERVER_DEV_MODE"),
        ("PEAGLE_GATE_MAX_SEQUENCES", "lots", "PEAGLE_GATE_MAX_SEQUENCES is 'lots'"),
    ],
)
def test_what_is_forbidden_ends_the_start_with_its_reason(
    server: Path, tmp_path: Path, name: str, value: str, words: str
) -> None:
    process, out, err = finished(server, PEAGLE_SM_MODEL_DIR=str(tmp_path), **{name: value})
    assert process.returncode == 78
    assert out == ""
    assert "serve: error: " in err
    assert words in err
    assert words in last_words(err.splitlines()), "the local engine tells it as the reason of the failure"


def test_it_can_be_started_by_name() -> None:
    assert os.access(SERVE, os.X_OK)
    assert SERVE.read_text().startswith("#!/usr/bin/env python3\n")
