"""Each client against each kind of stream, over HTTP: `scripts/clients-table` for docs/how-to/clients.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from peagle_bench.results import provenance
from tests.clients import page
from tests.clients.bench import Bench
from tests.clients.clients import CLIENTS, ROOT, Client
from tests.clients.columns import COLUMNS
from tests.clients.trial import Cell
from tests.local.serving import running_server

_PAGE = Path("docs/how-to/clients.md")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/clients-table", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--streams", type=int, default=300, help="streams a cell (default 300)")
    parser.add_argument("--parallel", type=int, default=4, help="clients at a time (default 4)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[client.key for client in CLIENTS],
        metavar="CLIENT",
        help="run these clients alone, such as `litellm litellm-async`; the other rows stay",
    )
    parser.add_argument("--page", type=Path, default=ROOT / _PAGE, help="the page whose table to write")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Be a command."""
    options = arguments(words)
    clients = [client for client in CLIENTS if client.key in (options.only or client.key)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        weights = Path(folder) / "weights"
        weights.mkdir()
        with contextmanager(running_server)(weights) as server, Bench(server, _say) as bench:
            cells = _cells(clients, bench, options.streams, options.parallel)
    text = options.page.read_text(encoding="utf-8")
    write = partial(page.renewed, text) if options.only else page.section
    section = write(
        clients,
        COLUMNS,
        cells,
        origin=provenance.origin(seed=0),
        streams=options.streams,
        command=" ".join(["scripts/clients-table", *(sys.argv[1:] if words is None else words)]),
    )
    options.page.write_text(page.replaced(text, section), encoding="utf-8")
    print(section)
    return 0


def _cells(
    clients: Sequence[Client], bench: Bench, streams: int, parallel: int
) -> dict[str, dict[str, Cell | None]]:
    programs: dict[str, list[Client]] = {}
    for client in clients:
        client.python(_say)  # one after the other: a build would slow down those who are being timed
        programs.setdefault(client.program, []).append(client)

    def rows(clients: list[Client]) -> dict[str, dict[str, Cell | None]]:
        return {client.key: _row(bench, client, streams) for client in clients}

    with ThreadPoolExecutor(parallel) as pool:
        return {key: row for found in pool.map(rows, programs.values()) for key, row in found.items()}


def _row(bench: Bench, client: Client, streams: int) -> dict[str, Cell | None]:
    row = {}
    for column in COLUMNS:
        row[column.key] = cell = bench.tried(client, column, range(streams))
        if cell is not None:
            _say(f"{client.key}, {column.title}: {dict(cell.counts())} {dict(cell.errors) or ''}")
    return row


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
