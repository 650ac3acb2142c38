"""Asks OSV's API for everything known of some packages (https://google.github.io/osv.dev/api/)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

API = "https://api.osv.dev"
BATCH = 1000
"""Queries in one request, at most (OSV's own limit)."""
_TIMEOUT_S = 60

Transport = Callable[[str, "bytes | None"], bytes]
"""Sends a body (None: GET) to an address and returns the answer's body."""


class OsvError(Exception):
    """OSV did not answer, or not as documented."""


def http(url: str, body: bytes | None) -> bytes:
    """Send one request.

    Raises:
        OsvError: no answer, or another status than 200.
    """
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise OsvError(f"{url}: {error}") from error
    return content


def known(packages: Iterable[str], send: Transport = http, api: str = API) -> list[dict[str, Any]]:
    """Return the whole record of every advisory that names one of these packages of PyPI.

    Raises:
        OsvError: it did not answer, or not as documented.
    """
    return [
        _object(send(f"{api}/v1/vulns/{quote(found)}", None))
        for found in sorted(set(_ids(sorted(set(packages)), send, api)))
    ]


def _ids(packages: list[str], send: Transport, api: str) -> Iterator[str]:
    """The ids, page by page: each query of a batch has pages of its own."""
    queries: list[dict[str, Any]] = [{"package": {"name": name, "ecosystem": "PyPI"}} for name in packages]
    while queries:
        more = []
        for batch in _batches(queries):
            answer = _object(send(f"{api}/v1/querybatch", json.dumps({"queries": batch}).encode()))
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(batch):
                raise OsvError(f"{api}/v1/querybatch: {len(batch)} queries, another number of results")
            for query, result in zip(batch, results, strict=True):
                yield from (each["id"] for each in result.get("vulns", ()))
                if token := result.get("next_page_token"):
                    more.append({**query, "page_token": token})
        queries = more


def _batches(queries: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(queries), BATCH):
        yield queries[start : start + BATCH]


def _object(content: bytes) -> dict[str, Any]:
    try:
        read = json.loads(content)
    except ValueError as error:
        raise OsvError(f"no JSON: {content[:80]!r}") from error
    if not isinstance(read, dict):
        raise OsvError(f"no JSON object: {content[:80]!r}")
    return read
