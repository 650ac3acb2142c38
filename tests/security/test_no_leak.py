"""Credentials stay where they are: not on the screen, not in an error, not in what programs read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIA" + "Z" * 16,
    "AWS_SECRET_ACCESS_KEY": "not/a/real/secret/" + "s" * 22,
    "AWS_SESSION_TOKEN": "not-a-real-token-" + "t" * 40,
}


@pytest.mark.parametrize("arguments", [["list"], ["list", "--format", "json"]])
def test_an_error_of_aws_tells_no_credential(arguments: list[str]) -> None:
    """Nobody listens on port 9, so the request is signed, sent, and fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "peagle_sm", *arguments, "--region", "us-east-1"],
        env={
            **os.environ,
            **KEYS,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "127.0.0.1:9" in ran.stdout + ran.stderr, "it must have tried"
    assert [name for name, value in KEYS.items() if value in ran.stdout + ran.stderr] == []
