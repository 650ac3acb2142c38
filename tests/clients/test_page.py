"""The table of docs/how-to/clients.md: what is written, read back, and what must hold of ours."""

from __future__ import annotations

from collections import Counter

import pytest

from sagemaker_local.faults import parse
from tests.clients import page
from tests.clients.clients import BEHIND_SERVE, CLIENTS, PRICES, ROOT, Client
from tests.clients.columns import COLUMNS, Column
from tests.clients.trial import ERROR, EXACT, Cell, outcome

PAGE = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")
ROWS = page.read(PAGE, COLUMNS)
NEVER_LIE = ("serve", "ours", "ours-async")

ORIGIN = {
    "date": "2026-11-22T04:00:00+00:00",
    "machine": {"cores": 2, "processor": "a processor"},
    "versions": {"python": "3.11.7"},
    "git_revision": "abc",
}


def client(key: str) -> Client:
    return next(each for each in CLIENTS if each.key == key)


def cells(*outcomes: str, error: str = "") -> dict[str, Cell | None]:
    errors = Counter({error: outcomes.count(ERROR)} if error else {})
    return {column.key: Cell(list(outcomes), errors) for column in COLUMNS[:2]}


def written() -> str:
    rows = {"openai": cells(EXACT, "wrong", EXACT), "ours": cells(ERROR, EXACT, "hang", error="StreamCut")}
    clients = [client("openai"), client("ours")]
    rows["openai"][COLUMNS[1].key] = None
    return page.section(clients, COLUMNS[:2], rows, origin=ORIGIN, streams=3, command="scripts/clients-table")


def test_the_whole_section() -> None:
    openai, ours = page.name(client("openai")), page.name(client("ours"))
    assert written().splitlines() == [
        page.BEGIN,
        "Written by `scripts/clients-table` on 2026-11-22: 3 streams a cell, on 2 cores of a processor, "
        "Python 3.11.7, revision abc.",
        "",
        "| client | an event a part | random byte splits |",
        "|---|---|---|",
        f"| {openai} | 2 exact, **1 wrong** | - |",
        f"| {ours} | 1 exact, 1 error, **1 hang** | 1 exact, 1 error, **1 hang** |",
        "",
        "The errors, by the names of their classes:",
        "",
        "| client | errors |",
        "|---|---|",
        "| OpenAI SDK, OpenAI route | none |",
        "| **peagle_sm** `stream` | an event a part: `StreamCut` 1; random byte splits: `StreamCut` 1 |",
        page.END,
    ]


def test_what_was_written_is_read_back() -> None:
    text = page.replaced(f"# Clients\n{page.BEGIN}\nold\n{page.END}\nmore\n", written())
    assert text.startswith("# Clients\n")
    assert text.endswith(f"{page.END}\nmore\n")
    assert "old" not in text
    found = page.read(text, COLUMNS[:2])
    assert found[page.name(client("openai"))] == {"plain": {"exact": 2, "wrong": 1}, "split": {}}
    assert found[page.name(client("ours"))]["plain"] == {"exact": 1, "error": 1, "hang": 1}


def test_the_rows_of_some_clients_are_written_anew_and_the_rest_stays() -> None:
    before = page.replaced(f"# Clients\n{page.BEGIN}\nold\n{page.END}\n", written())
    rows = {"openai": cells("wrong", "wrong", error="")}
    section = page.renewed(
        before, [client("openai")], COLUMNS[:2], rows, origin=ORIGIN, streams=2, command="x --only openai"
    )
    after = page.replaced(before, section)
    name = page.name(client("openai"))
    read_rows = page.read(after, COLUMNS[:2])
    assert read_rows[name] == {"plain": {"wrong": 2}, "split": {"wrong": 2}}
    del read_rows[name]
    assert read_rows == {key: row for key, row in page.read(before, COLUMNS[:2]).items() if key != name}
    assert "Written by `scripts/clients-table` on 2026-11-22: 3 streams a cell" in after
    assert after.count("Rows of OpenAI SDK, OpenAI route: `x --only openai` on 2026-11-22: 2 streams") == 1
    again = page.renewed(
        after, [client("openai")], COLUMNS[:2], rows, origin=ORIGIN, streams=2, command="x --only openai"
    )
    assert again == section


def test_a_client_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no row .*litellm"):
        page.renewed(
            written(),
            [client("litellm")],
            COLUMNS[:2],
            {"litellm": cells(EXACT)},
            origin=ORIGIN,
            streams=1,
            command="x",
        )


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines"):
        page.replaced("# Clients\n", written())


@pytest.mark.parametrize("column", COLUMNS, ids=[column.key for column in COLUMNS])
@pytest.mark.parametrize("operation", ["stream", "openai"])
def test_each_column_is_a_fault_that_the_local_sagemaker_knows(column: Column, operation: str) -> None:
    for number in range(6):
        fault = column.fault(number, operation)
        assert fault is not None or column.framed_only
        if fault is not None:
            assert parse(fault).times == 1
            assert fault == column.fault(number, operation)


def test_the_page_has_a_row_for_each_client_with_its_version() -> None:
    assert list(ROWS) == [page.name(each) for each in CLIENTS], "run scripts/clients-table"
    assert {each.lock for each in (*CLIENTS, *BEHIND_SERVE)} - {None} == set(PRICES)


@pytest.mark.parametrize("key", NEVER_LIE)
def test_of_300_streams_ours_gave_the_answer_or_an_error(key: str) -> None:
    row = ROWS[page.name(client(key))]
    assert row == {column.key: {EXACT if column.whole else ERROR: 300} for column in COLUMNS}


def test_an_outcome_is_what_a_reader_would_believe() -> None:
    whole = {"text": "abc", "error": None, "hang": False}
    assert outcome(whole, "abc") == "exact"
    assert outcome({**whole, "text": "ab"}, "abc") == "wrong"
    assert outcome({**whole, "error": "KeyError"}, "abc") == "error"
    assert outcome({**whole, "hang": True}, "abc") == "hang"
