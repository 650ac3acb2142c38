from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.compare.analysis import (
    Cell,
    of_blocks,
    of_prompts,
    of_requests_in_blocks,
    share_within,
)
from peagle_bench.load import Window
from peagle_bench.results.records import Phase, RequestRecord
from tests.bench.compare.simulating import EIGHT, request


def test_a_prompt_is_all_its_turns_and_only_what_was_measured() -> None:
    records = [
        request("a", "p", tokens=10, seconds=1, drafts=4, accepted=5),
        request("a", "p", tokens=20, seconds=2, drafts=6, accepted=13, turn=1),
        request("a", "p", phase="warm-up", tokens=1000),
    ]
    assert of_prompts(records, speculates=True) == {"p": Cell(30, 3, 10, 28)}


def test_a_prompt_with_a_failed_turn_is_left_out_whole() -> None:
    records = [request("a", "p"), request("a", "p", turn=1, error="StreamError"), request("a", "q")]
    assert set(of_prompts(records, speculates=None)) == {"q"}


def test_plain_decoding_takes_one_step_a_token_and_an_unknown_mode_tells_nothing() -> None:
    records = [request("a", "p", tokens=10)]
    assert of_prompts(records, speculates=False)["p"] == Cell(10, 1, 10, 10)
    assert of_prompts(records, speculates=None)["p"] == Cell(10, 1, None, None)
    assert (
        of_prompts([*records, request("a", "p", drafts=1, accepted=2)], speculates=True)["p"].drafts is None
    )


@pytest.mark.parametrize(
    ("began", "ended", "share"),
    [(0, 20, 1.0), (10.5, 20, 0.0), (0, 5.5, 0.5), (5.5, 20, 0.5), (4.5, 5.5, 0.1)],
)
def test_a_request_counts_with_the_chunks_that_came_within(began: float, ended: float, share: float) -> None:
    ten_seconds = request("a", "p", seconds=10, chunks=10)  # chunks at 1, 2 … 10
    assert share_within(ten_seconds, Window(began, ended, ended - began)) == pytest.approx(share)


def test_no_chunk_is_no_share() -> None:
    assert share_within(replace(request("a", "p"), first_s=None, last_s=None), Window(0, 9, 9)) == 0


def test_a_block_counts_what_arrived_in_both_its_windows_whatever_the_phase() -> None:
    def ten_seconds(prompt: str, sent: float, accepted: int, phase: Phase) -> RequestRecord:
        return request(
            "a", prompt, sent=sent, seconds=10, load=EIGHT, block=3, drafts=20, accepted=accepted, phase=phase
        )

    records = [
        ten_seconds("p", -5, 60, "warm-up"),  # half before
        ten_seconds("q", 2, 80, "measured"),
        ten_seconds("r", 15, 80, "drain"),  # half after
        request("a", "r", error="StreamError", sent=1, load=EIGHT, block=3),
        request("a", "s", sent=2, load=EIGHT, block=4),
    ]
    cells = of_blocks(records, [(3, Window(0.05, 20.05, 20.0)), (3, Window(100, 110, 10.0))], speculates=True)
    assert set(cells) == {3}
    result = cells[3]
    assert (result.tokens, result.seconds) == (pytest.approx(200), pytest.approx(30))
    assert (result.drafts, result.advanced) == (pytest.approx(40), pytest.approx(190))


def test_under_load_a_category_has_the_seconds_of_its_own_requests() -> None:
    records = [request("a", "p", tokens=30, seconds=2, block=1), request("a", "q", phase="drain", block=1)]
    assert of_requests_in_blocks(records, speculates=None) == {1: Cell(30, 2, None, None)}
