"""The page that holds load clients against the truth, from readings written down here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peagle_sm.core.errors import SpecError
from scripts.bench.clients.page import page
from scripts.bench.clients.run import Bench, Reading, Said

OURS = Reading(
    "ours (HTTP)",
    16,
    Said(0.0, 1.0, otps=1005.0, itl_p99_ms=11.0, ttft_p99_ms=30.0, errors=0, cpu_us_per_chunk=12.0),
    otps=1000.0,
    itl_p99_ms=10.5,
    ttft_p99_ms=25.0,
    load=0.5,
)
VLLM = replace(
    OURS, client="vllm bench serve", said=replace(OURS.said, itl_p99_ms=12.0, cpu_us_per_chunk=None)
)


def written(*readings: Reading) -> str:
    return page(
        readings,
        floors={16: [6.0, 7.0, 8.0]},
        versions={"vllm": "0.32.0"},
        machine={"cores": 2, "processor": "a processor"},
        load=(0.1, 0.4),
        gap_ms=10.0,
        command="scripts/bench-clients --rounds 3",
    )


def test_each_client_stands_beside_the_truth() -> None:
    text = written(OURS, VLLM)
    assert (
        "| 16 | ours (HTTP) | 1,005.0 | 1,000.0 | +0.50% | 11.0 | 10.5 | +4.8% | 30 | 25 | 12.0 | 7.0 | 0.5 |"
        in text
    )
    assert (
        "| 16 | vllm bench serve | 1,005.0 | 1,000.0 | +0.50% | 12.0 | 10.5 | +14.3% | 30 | 25 | - | - |"
        in text
    )
    assert "1 rounds" in text
    assert "does not hold" not in text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"otps": 980.0}, "**does not hold:** OTPS off by 2.00%"),
        ({"itl_p99_ms": 14.0}, "**does not hold:** no worse than `vllm bench serve` (14.3%)"),
        ({"itl_p99_ms": 9.0}, "**does not hold:** ITL p99 off by 14.3%"),
        ({"cpu_us_per_chunk": 21.0}, "**does not hold:** 21.0 us of CPU a chunk"),
    ],
)
def test_what_does_not_hold_is_told(said: dict[str, Any], words: str) -> None:
    assert words in written(replace(OURS, said=replace(OURS.said, **said)), VLLM)


def test_a_client_that_there_is_not_is_refused() -> None:
    with pytest.raises(SpecError, match="nobody"):
        Bench("tests.bench.scheduled_server", 10.0, print, ["nobody"])
