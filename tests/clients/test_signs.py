"""Each client does what docs/how-to/clients.md says of it, with each stream and at `peagle-sm serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.clients import page
from tests.clients.bench import Bench
from tests.clients.clients import BEHIND_SERVE, CLIENTS, ROOT, Client
from tests.clients.columns import COLUMNS
from tests.clients.trial import ERROR, EXACT, HANG
from tests.local.serving import Server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
#: The table's first ones: same seeds, same streams.
STREAMS = range(3)
#: Now and then, when a garbage collection comes at the wrong moment (docs/how-to/clients.md).
LOCKS_UP = ("litellm",)
PAGE = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")
ROWS = page.read(PAGE, COLUMNS)


@pytest.fixture(scope="module")
def bench(server: Server) -> Iterator[Bench]:
    with Bench(server, lambda line: print(line, file=sys.stderr)) as bench:
        yield bench


@pytest.mark.parametrize("client", CLIENTS, ids=[client.key for client in CLIENTS])
def test_a_client_does_what_the_page_says(client: Client, bench: Bench) -> None:
    row = ROWS[client.label]
    for column in COLUMNS:
        cell = bench.tried(client, column, STREAMS)
        outcomes = set() if cell is None else set(cell.outcomes)
        if client.key in LOCKS_UP:
            outcomes.discard(HANG)
        assert outcomes <= set(row[column.key]), column.title
        assert bool(outcomes) == bool(row[column.key])


@pytest.mark.parametrize("client", BEHIND_SERVE, ids=[client.key for client in BEHIND_SERVE])
def test_a_client_at_serve_raises_what_the_page_says(client: Client, bench: Bench) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {client.label}<br>")]
    versions = ", ".join(client.versions().values())
    for column in COLUMNS:
        cell = bench.tried(client, column, STREAMS)
        assert cell is not None
        assert set(cell.outcomes) == {EXACT if column.whole else ERROR}, column.title
        for error in cell.errors:
            assert f"<br>{versions} | `{error}` |" in row, column.title
