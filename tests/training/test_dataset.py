"""Documents to train on: every wrong line is named, and the order is one that a seed and a place decide."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_train import Mistake
from peagle_train.dataset import Documents, check_channel, shares, stream
from peagle_train.rules import read_line
from peagle_train.token_map import most_frequent
from tests.training.support import VOCAB, document, lines

GOOD = {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "conversation": "a"}


def checked(folder: Path, text: str, length: int = 64) -> Any:
    (folder / "a.tokens.jsonl").write_text(text)
    return check_channel("training", folder, vocab=VOCAB, sequence_length=length)


def test_a_channel_is_counted(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.tokens.jsonl").write_text(lines([GOOD]) + "\n")
    result = checked(tmp_path, lines([document(1, length=40), GOOD]), length=30)
    assert (result.documents, result.tokens, result.truncated) == (3, 30 + 3 + 3, 1)
    assert result.supervised == 20 + 2 + 2
    assert result.files == ("a.tokens.jsonl", "deeper/b.tokens.jsonl")


@given(st.lists(st.lists(st.tuples(st.integers(0, 39), st.booleans()), min_size=2), min_size=1))
def test_a_head_from_nothing_drafts_the_most_frequent_learned_tokens(
    rows: list[list[tuple[int, bool]]],
) -> None:
    documents = [([token for token, _ in row], [int(learned) for _, learned in row]) for row in rows]
    chosen = most_frequent(documents, 16, 40)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 16
    learned = [token for row in rows for token, is_learned in row if is_learned]
    least = min(learned.count(token) for token in chosen)
    assert all(learned.count(token) <= least for token in set(range(40)) - set(chosen))


def test_the_hash_is_of_names_and_contents(tmp_path: Path) -> None:
    digest = checked(tmp_path, lines([GOOD])).sha256
    assert checked(tmp_path, lines([GOOD])).sha256 == digest
    assert checked(tmp_path, lines([{**GOOD, "input_ids": [1, 2, 4]}])).sha256 != digest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        (json.dumps({"loss_mask": [1, 1]}), "input_ids is not a list of whole numbers"),
        (json.dumps({**GOOD, "input_ids": [1, 2.5, 3]}), "input_ids is not a list of whole numbers"),
        (json.dumps({**GOOD, "input_ids": [1, True, 3]}), "input_ids is not a list of whole numbers"),
        (json.dumps({**GOOD, "loss_mask": "011"}), "loss_mask is not a list of whole numbers"),
        (json.dumps({**GOOD, "loss_mask": [0, 1]}), "input_ids has 3 values, loss_mask 2"),
        (json.dumps({"input_ids": [1], "loss_mask": [1]}), "allowed: 2 and more"),
        (
            json.dumps({**GOOD, "input_ids": [1, 2, VOCAB]}),
            "tokens go from 0 to 2047: it has another tokenizer",
        ),
        (json.dumps({**GOOD, "input_ids": [1, -2, 3]}), "input_ids has -2"),
        (json.dumps({**GOOD, "loss_mask": [0, 2, 1]}), "loss_mask has 2; allowed: 0 and 1"),
        (json.dumps({**GOOD, "loss_mask": [1, 0, 0]}), "nothing is learned from it"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(Mistake) as caught:
        checked(tmp_path, lines([GOOD]) + "\n" + line + "\n" + lines([GOOD]))
    message = str(caught.value)
    assert message.startswith("training/a.tokens.jsonl, line 3: ")
    assert words in message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(line: bytes) -> None:
    try:
        ids, mask = read_line(line, VOCAB)
    except ValueError:
        return
    assert len(ids) == len(mask)


def test_an_empty_channel_is_no_channel(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"the channel training has no \*\.tokens\.jsonl"):
        check_channel("training", tmp_path, vocab=VOCAB, sequence_length=64)
    with pytest.raises(Mistake, match="is empty: 1 files without a line"):
        checked(tmp_path, "\n\n")
    with pytest.raises(Mistake, match="no supervised token is within sequence_length=16"):
        checked(tmp_path, lines([document(1, length=40, prompt=20)]), length=16)


def test_documents_are_read_where_they_lie(tmp_path: Path) -> None:
    given = [document(number, length=10 + number, prompt=4) for number in range(5)]
    result = checked(tmp_path, "\n".join(json.dumps(each) for each in given), length=12)
    documents = Documents(tmp_path, result.files, VOCAB, 12)
    assert len(documents) == 5
    for number in (4, 0, 2, 4):
        assert documents[number] == (given[number]["input_ids"][:12], given[number]["loss_mask"][:12])


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 100))
def test_a_stream_goes_on_at_any_place(count: int, seed: int, start: int) -> None:
    whole = list(islice(stream(count, seed), start + 2 * count))
    assert list(islice(stream(count, seed, start), 2 * count)) == whole[start:]
    assert sorted(whole[:count]) == list(range(count)), "each document once before any comes again"


@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4), st.integers(0, 6))
def test_processes_share_the_stream_without_gap_or_overlap(
    count: int, micro: int, world: int, done: int
) -> None:
    start = done * micro * world
    each = [shares(count, 7, start=start, micro=micro, rank=rank, world=world) for rank in range(world)]
    together = [number for _ in range(3) for share in each for number in next(share)]
    assert together == list(islice(stream(count, 7, start), 3 * micro * world))
