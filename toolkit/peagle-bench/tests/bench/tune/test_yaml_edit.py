from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.tune.job import write_k
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import parse_spec

HEAD = "# mine\nname: demo   # its name\nmodel: tiny-code\n"
TAIL = "lifecycle:\n  max_lifetime_hours: 2  # hours\n"
PARTS = [
    "speculation:\n  mode: p-eagle  # one pass\n",
    "speculation:\n  # why three\n  num_speculative_tokens: 3  # by hand\n  mode: p-eagle\n",
    "speculation:\n    mode: eagle3\n    draft_head: mine\n\n    # the end\n",
    "speculation: {mode: p-eagle}\n",
    "speculation: {mode: p-eagle, num_speculative_tokens: 3} # short\n",
    "speculation: {}\n",
    "",
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("order", ["before", "after"])
def test_the_k_is_written_and_nothing_else_changes(part: str, order: str) -> None:
    text = HEAD + (part + TAIL if order == "before" else TAIL + part)
    written = write_k(text, 7, ["because"])
    assert parse_spec(written).speculation.num_speculative_tokens == 7
    kept = [line for line in text.splitlines() if "num_speculative_tokens" not in line and "{" not in line]
    for line in kept:
        assert line in written.splitlines()
    for comment in ("# mine", "# its name", "# hours", *(["# by hand"] if "# by hand" in text else [])):
        assert comment in written
    lines = [line.strip() for line in written.splitlines()]
    assert lines.count("# tuned: because") == 1


def test_the_evidence_stands_right_above_the_k() -> None:
    written = write_k(HEAD + PARTS[0] + TAIL, 7, ["one", "two"])
    assert (
        "speculation:\n  mode: p-eagle  # one pass\n  # tuned: one\n  # tuned: two\n"
        "  num_speculative_tokens: 7\nlifecycle:\n"
    ) in written


@given(k=st.integers(1, 32), again=st.integers(1, 32), part=st.sampled_from(PARTS))
def test_a_second_tuning_replaces_the_first(k: int, again: int, part: str) -> None:
    once = write_k(HEAD + part + TAIL, k, ["old evidence", "of two lines"])
    twice = write_k(once, again, ["new evidence"])
    assert "old evidence" not in twice
    assert twice == write_k(HEAD + part + TAIL, again, ["new evidence"])


def test_what_is_no_spec_is_refused_and_named() -> None:
    with pytest.raises(SpecError, match=r"peagle\.yaml"):
        write_k("name: demo\n", 7, [], "peagle.yaml")


def test_one_k_removes_a_table() -> None:
    text = "name: demo\nmodel: tiny-code\nspeculation:\n  num_speculative_tokens: 7\n"
    text += "  num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 1024, 0]]\n"
    speculation = parse_spec(write_k(text, 3, ["because"])).speculation
    assert speculation.num_speculative_tokens == 3
    assert speculation.num_speculative_tokens_per_batch_size is None
