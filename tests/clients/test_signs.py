"""Each client does what the table of docs/how-to/clients.md says of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.clients import page
from tests.clients.bench import Bench
from tests.clients.clients import CLIENTS, ROOT, Client
from tests.clients.columns import COLUMNS
from tests.clients.trial import HANG
from tests.local.serving import Server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
#: The table's first ones: same seeds, same streams.
STREAMS = range(3)
#: Now and then, when a garbage collection comes at the wrong moment (docs/how-to/clients.md).
LOCKS_UP = ("litellm",)
ROWS = page.read((ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8"), COLUMNS)


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
