"""What docs/how-to/clients.md recommends, at `peagle-sm serve`: an error for each broken stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.clients.bench import Bench
from tests.clients.clients import BEHIND_SERVE, ROOT, Client
from tests.clients.columns import COLUMNS
from tests.clients.trial import ERROR, EXACT
from tests.local.serving import Server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
STREAMS = range(3)
PAGE = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench(server: Server) -> Iterator[Bench]:
    with Bench(server, lambda line: print(line, file=sys.stderr)) as bench:
        yield bench


@pytest.mark.parametrize("client", BEHIND_SERVE, ids=[client.key for client in BEHIND_SERVE])
def test_a_client_raises_what_the_page_says(client: Client, bench: Bench) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {client.label}<br>")]
    versions = ", ".join(client.versions().values())
    for column in COLUMNS:
        cell = bench.tried(client, column, STREAMS)
        assert cell is not None
        assert set(cell.outcomes) == {EXACT if column.whole else ERROR}, column.title
        for error in cell.errors:
            assert f"<br>{versions} | `{error}` |" in row, column.title
