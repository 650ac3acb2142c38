"""The table of docs/how-to/clients.md: its rows, and the cells that ours must have."""

from __future__ import annotations

import pytest

from sagemaker_local.faults import parse
from tests.clients import page
from tests.clients.clients import BEHIND_SERVE, CLIENTS, PRICES, ROOT, Client
from tests.clients.columns import COLUMNS, Column
from tests.clients.trial import ERROR, EXACT, outcome

PAGE = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")
ROWS = page.read(PAGE, COLUMNS)
NEVER_LIE = ("serve", "ours", "ours-async")


def client(key: str) -> Client:
    return next(each for each in CLIENTS if each.key == key)


@pytest.mark.parametrize("column", COLUMNS, ids=[column.key for column in COLUMNS])
@pytest.mark.parametrize("operation", ["stream", "openai"])
def test_each_column_is_a_fault_that_the_local_sagemaker_knows(column: Column, operation: str) -> None:
    for number in range(6):
        fault = column.fault(number, operation)
        assert fault is not None or column.framed_only
        if fault is not None:
            assert parse(fault).times == 1
            assert fault == column.fault(number, operation)


def test_the_page_has_a_row_for_each_client() -> None:
    assert list(ROWS) == [client.label for client in CLIENTS]
    assert {each.lock for each in (*CLIENTS, *BEHIND_SERVE)} - {None} == set(PRICES)


@pytest.mark.parametrize("key", NEVER_LIE)
def test_of_300_streams_ours_gave_the_answer_or_an_error(key: str) -> None:
    row = ROWS[client(key).label]
    assert row == {column.key: {EXACT if column.whole else ERROR: 300} for column in COLUMNS}


def test_an_outcome_is_what_a_reader_would_believe() -> None:
    whole = {"text": "abc", "error": None, "hang": False}
    assert outcome(whole, "abc") == "exact"
    assert outcome({**whole, "text": "ab"}, "abc") == "wrong"
    assert outcome({**whole, "error": "KeyError"}, "abc") == "error"
    assert outcome({**whole, "hang": True}, "abc") == "hang"
