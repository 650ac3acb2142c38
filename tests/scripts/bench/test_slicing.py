"""What slices cost: the interval is over pairs, and what is not shown is said so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from peagle_bench.results import provenance
from scripts.bench.progress import Reporter
from scripts.bench.slicing.command import arguments, job
from scripts.bench.slicing.page import PACED, Reading, of_pairs, page


def readings(cost: float, noise: float, pairs: int = 8) -> list[Reading]:
    draw = random.Random(15)
    found = []
    for pair in range(pairs):
        for sliced in (True, False):
            otps = 1000 * (1 - cost * sliced) * draw.lognormvariate(0, noise)
            found.append(Reading(PACED, 32, pair, sliced, otps, 192, 0, 900.0, 0.5))
    return found


@pytest.mark.parametrize(
    ("cost", "noise", "said"),
    [
        (0.0, 0.001, "- paced server, c=32: at most 1% of OTPS"),
        (0.05, 0.001, "- **does not hold:** paced server"),
        (0.0, 0.05, "- **not shown:** paced server"),
    ],
)
def test_the_page_says_what_holds(cost: float, noise: float, said: str) -> None:
    found = readings(cost, noise)
    assert 1 - of_pairs(found).value == pytest.approx(cost, abs=3 * noise)
    text = page(found, alone_us=1, origin=provenance.origin(0), load=(0, 0), command="scripts/bench-slicing")
    assert said in text


@pytest.mark.campaign
def test_the_paced_server_is_measured_with_slices_and_without(tmp_path: Path) -> None:
    options = arguments(
        ["--pairs", "2", "--requests", "1", "--servers", PACED, "--page", str(tmp_path / "page.md")]
    )
    assert job(options, Reporter()) == 0
    rows = [line.split("|") for line in (tmp_path / "page.md").read_text().splitlines() if "| paced" in line]
    assert [row[2].strip() for row in rows] == ["1", "32"]
    assert [row[9].strip() for row in rows] == ["0", "0"], "no request may fail"
