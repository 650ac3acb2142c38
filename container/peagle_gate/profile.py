"""Makes a head's own ``canary.json``: what it reaches on its canary prompts while nobody else asks.

``python3 -m peagle_gate.profile http://127.0.0.1:8080 > canary.json``, where an engine runs the head the way
that was found right. The file goes beside the head's ``config.json``; the canary then holds the head to it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from peagle_gate.acceptance import DRAFTS_NEEDED, Counts
from peagle_gate.canary import PROMPTS, Ask, CanaryError, look


async def measure(ask: Ask, prompts: tuple[str, ...] = PROMPTS, tokens: int = 128) -> dict[str, Any]:
    """Return the document of a ``canary.json``.

    Raises:
        CanaryError: the engine did not answer, or drafted too little to be a measure.
    """
    counts: Counts = await look(ask, prompts, tokens, at_once=8)
    if counts.drafts < DRAFTS_NEEDED:
        raise CanaryError(f"{counts.drafts} drafts, and {DRAFTS_NEEDED} are needed: is speculation on?")
    return {
        "drafts": counts.drafts,
        "tokens_each": tokens,
        "survival": [round(rate, 4) for rate in counts.survival],
        "prompts": list(prompts),
    }


def asking(url: str) -> Ask:
    """Return how to ask an engine over HTTP."""

    def at_once(method: str, path: str, body: object) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            url.rstrip("/") + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            raise CanaryError(f"{url} does not answer: {error}") from error

    async def ask(method: str, path: str, body: object) -> tuple[int, bytes]:
        return await asyncio.to_thread(at_once, method, path, body)

    return ask


def main(arguments: Sequence[str]) -> int:
    """Be a command."""
    if len(arguments) != 1 or not arguments[0].startswith("http"):
        print("usage: python3 -m peagle_gate.profile http://HOST:PORT > canary.json", file=sys.stderr)
        return 2
    try:
        document = asyncio.run(measure(asking(arguments[0])))
    except CanaryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(document, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
