"""A minute of `scripts/fuzz`, which runs for ten by default, and proof that it would find something."""

from __future__ import annotations

import pytest

from tests.aws.fuzzing import plain_reading, run
from tests.aws.streams import NAMES, outcome, recorded

SECONDS = 60.0


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_reading_is_right_on_whole_streams(name: str) -> None:
    whole = outcome([recorded(name)], frames=False)
    assert plain_reading(recorded(name)) == (whole.text, whole.reasoning)
    assert whole.text + whole.reasoning + str(whole.calls)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_minute_of_damaged_streams_gives_nothing_but_exact_answers_and_typed_errors() -> None:
    result = run(SECONDS, lambda line: None, start=20261122)
    for level in ("frames", "events", "shapes"):
        for kind in ("exact", "StreamDamaged"):
            assert result[f"{level}: {kind}"] > 0
