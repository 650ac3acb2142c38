"""`peagle-sm serve --record` as a process and as a prompt: what it shows, asks, writes and counts."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import Result

from peagle_sm.traffic.reading import read
from tests.cli.test_serve import served
from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


def test_it_shows_what_is_recorded_and_no_means_nothing(peagle: Run, endpoint: str) -> None:
    done = peagle("serve", endpoint, "--record", "t.jsonl", "--port", "0", answers="n\n")
    assert done.exit_code == 3
    shown = " ".join(done.stderr.split())
    for promise in (
        "every request, to t.jsonl",
        "acceptance, with secrets redacted",
        "not stored token ids, log-probabilities, images, audio",
        "names, addresses, unknown formats of keys, and secrets in images stay",
        "readable by you only (mode 600)",
        "kept 30 days",
    ):
        assert promise in shown
    assert "Record this traffic? [y/N]: n" in shown
    assert not Path("t.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--record", "t.jsonl"), "stdin is not a terminal and --yes was not given"),
        (("--record", "t.jsonl", "--sample", "0"), "sample: found 0; allowed: above 0, at most 1"),
        (("--sample", "0.5"), "--sample belongs to --record, which was not given"),
        (("--record", "s3://bucket/x", "--yes"), "found 's3://bucket/x'; allowed: a file"),
        (("--record", ".", "--yes"), "is a folder; allowed: a file"),
        (("--record", "t.jsonl", "--yes", "--sample", "2"), "sample: found 2; allowed: above 0, at most 1"),
        (("--record", "t.jsonl", "--yes", "--keep-days", "0"), "keep days: found '0'"),
    ],
)
def test_wrong_options_are_refused_before_it_serves(
    peagle: Run, endpoint: str, options: tuple[str, ...], says: str
) -> None:
    done = peagle("serve", endpoint, "--port", "0", *options)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def ask(url: str, headers: dict[str, str] | None = None, **settings: Any) -> None:
    client = openai.OpenAI(base_url=url, api_key="any", max_retries=0, default_headers=headers)
    client.chat.completions.create(
        model="", messages=QUESTION, stream=False, extra_body=script(SCRIPT_INVOKE="openai", **settings)
    )


def test_the_process_writes_its_file_and_counts_at_the_end(
    server: Server, endpoint: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    with served(server, endpoint, "--record", str(path), "--yes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        for _ in range(3):
            ask(url)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        message = process.stderr.read()
    assert f"recorded 3 of 3 requests; in {path}" in message
    assert len(read(path).records) == 3


def test_json(server: Server, endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    options = ("--record", str(path), "--yes", "--format", "json")
    with served(server, endpoint, *options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ask(json.loads(process.stdout.readline())["url"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert lines[-1] == {"recording": {"requests": 1, "recorded": 1, "lost": {}}}
    assert lines[0]["recording"]["target"] == str(path)
    assert len(read(path).records) == 1
