"""`tune --synthetic` on the real engine: it serves the acceptance that was set, and K by request.

Whether the predicted rates are those of real heads is measured by scripts/step-times.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.results.result_file import read
from peagle_bench.step_times import read_step_times
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

SPEC = "name: tiny\nmodel: tiny-code\nspeculation: {mode: p-eagle, num_speculative_tokens: 3}\n"


def test_no_draft_is_accepted_and_then_all_and_nothing_is_left(stack: LocalStack, tmp_path: Path) -> None:
    spec, out, port = tmp_path / "tiny.yaml", tmp_path / "s.jsonl", ("--local-port", str(stack.port))
    spec.write_text(SPEC)
    words = ("--synthetic", "--k", "1,3", "--concurrency", "1,2", "--requests", "4", "--unguarded", "--yes")
    done = run("tune", spec, *words, "--out", out, *port)
    assert done.exit_code == 0, done.stderr
    assert spec.read_text() == SPEC
    for window in read(out).windows:
        assert window.acceptance_length == pytest.approx(1, abs=0.01) or window.acceptance_length == (
            pytest.approx(window.k + 1, rel=0.03)
        )
    times = read_step_times(out)
    assert (times.ks, times.concurrencies, times.target) == ((1, 3), (1, 2), "tiny-code")
    for cell in times.cells.values():
        assert cell.rate(cell.k + 1) > cell.rate(1)
    assert run("list", *port, "--format", "quiet").stdout == ""
    prices = ("--usd-per-million", "0.1/0.4", "--usd-per-hour", "0.4", "--otps", "40", "--tokens", "600/200")
    lengths = ("--step-times", out, "--k", "3", "--acceptance-length", "2.5")
    answer = json.loads(run("decide", spec, *lengths, *prices, "--format", "json", *port).stdout)
    assert answer["stand_in_weights"]
    assert answer["predictions"][0]["synthetic"]
    assert answer["options"][0]["serves"]["value"] > 0
