"""The local server with scripted engines, and tools of AWS in environments of their own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagemaker_local.engine.env import ensure_environment
from sagemaker_local.paths import cache_dir
from scripts.bench.local_stack import LocalStack

# Every package, so that a new version of one of them changes nothing here. Its pins clash with the toolkit's.
AWS_CLI = (
    "awscli==1.46.2",
    "colorama==0.4.6",
    "docutils==0.19",
    "jmespath==1.1.0",
    "pyasn1==0.6.5",
    "python-dateutil==2.9.0.post0",
    "PyYAML==6.0.3",
    "rsa==4.7.2",
    "six==1.17.0",
    "urllib3==2.8.0",
)


def tool_environment(packages: tuple[str, ...]) -> Path:
    """The folder of programs of an environment with these packages; made once, later without network."""
    key = hashlib.sha256("\n".join([*packages, sys.version]).encode()).hexdigest()[:16]
    home = cache_dir() / "tools" / key

    def build() -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
        install = ["install", "-q", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-compile"]
        subprocess.run([*pip, *install, *packages], check=True)

    return ensure_environment(home, build, lambda line: print(line, file=sys.stderr)).parent


@pytest.fixture(scope="session")
def aws_program() -> Path:
    """The AWS CLI as PyPI has it."""
    return tool_environment(AWS_CLI) / "aws"


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """A local SageMaker with the real engine, in which nothing is left at the end, and of it no process."""
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        yield stack
        assert stack.delete_all() == []
    assert stack.left == []
