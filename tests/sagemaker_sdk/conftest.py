"""The SageMaker Python SDK, as PyPI has it, in an environment of its own; programs run in it as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.process.status import LocalStatus
from tests.own_packages import link_packages

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "sagemaker-sdk.lock"
PROGRAMS = Path(__file__).with_name("programs")
Sdk = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def sdk_python() -> Path:
    """The Python that has the SDK; building it takes the network once."""
    return ensure_locked(
        "sagemaker-sdk", LOCK, "half a minute and 310 MB", lambda line: print(line, file=sys.stderr)
    )


@pytest.fixture(scope="session")
def sdk(sdk_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Sdk:
    """Runs a program of `programs/` with what the page says to set, and returns the JSON it prints last."""
    home = tmp_path_factory.mktemp("home")
    link_packages(home / "path")

    def run(program: str, status: LocalStatus, **more: str) -> dict[str, Any]:
        environ = {
            "AWS_ENDPOINT_URL": status.endpoint_url,
            "AWS_ENDPOINT_URL_STS": status.endpoint_url,
            "AWS_DEFAULT_REGION": status.region,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
            "STATUS": json.dumps(status.to_dict()),
            "HOME": str(home),
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "PYTHONPATH": f"{home / 'path'}:{PROGRAMS}",
            **more,
        }
        done = subprocess.run(
            [sdk_python, PROGRAMS / f"{program}.py"],
            cwd=home,
            env=environ,
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        document = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(document, dict)
        return document

    return run
