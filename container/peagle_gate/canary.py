"""Canary: fixed prompts that the engine answers before the first healthy ``/ping``.

Their drafts show whether drafting is effective. If a file ``canary.json`` with the head's own prompts and
profile is beside the head's ``config.json``, the canary compares the head with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from peagle_gate.acceptance import Counts, Profile, fault, read_counts, read_profile
from peagle_gate.startup import Settings, Speculation

PROFILE_NAME = "canary.json"
Ask = Callable[[str, str, object], Awaitable[tuple[int, bytes]]]

#: Prompts for heads without their own: ordinary tasks with long enough answers.
PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number, with a docstring and three tests.",
    "Write a Python class for a bank account with deposit, withdraw and a history of transactions.",
    "Write a function in Python that parses a CSV line with quoted fields. Explain each step.",
    "Write SQL that lists the ten customers with the highest revenue of the last twelve months.",
    "Write a JSON document that describes five books with title, author, year and a list of topics.",
    "Write a bash script that backs up a directory and keeps the last seven copies.",
    "Write a JavaScript function that debounces another function, and show how it is used.",
    "Write a Python generator that yields all permutations of a list without itertools.",
    "Explain how a hash table works, and what happens when two keys collide.",
    "Explain the difference between a process and a thread to a new colleague.",
    "Explain step by step how to find out why a web page loads slowly.",
    "Summarise the causes of the French Revolution in a few paragraphs.",
    "Describe how photosynthesis works for a school book.",
    "Write a polite letter to a landlord about a broken heating system.",
    "Write a recipe for vegetable soup for four people, with amounts and times.",
    "Compare electric cars and cars with combustion engines in a table of seven rows.",
    "A train leaves at 9:40 and drives 210 km at 84 km/h. When does it arrive? Show the calculation.",
    "Write a unit test suite in Python for a function that validates e-mail addresses.",
    "Write a Dockerfile for a small Python web service and explain every line.",
    "List the planets of the solar system with diameter, distance from the sun and number of moons.",
)


def read_head_profile(speculation: Speculation) -> Profile | None:
    """Read the head's own ``canary.json``; None without one, as for public heads."""
    if not speculation.head:
        return None
    try:
        document = json.loads((Path(speculation.head) / PROFILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read_profile(document)


async def look(ask: Ask, prompts: tuple[str, ...], tokens: int, at_once: int) -> Counts:
    """Send the prompts greedily, ``at_once`` in parallel, and return the engine's counts.

    Raises:
        CanaryError: the engine did not answer.
    """
    before = await scrape(ask)
    turns = asyncio.Semaphore(max(1, at_once))

    async def one(prompt: str) -> None:
        async with turns:
            await _answer(ask, prompt, tokens)

    await asyncio.gather(*(one(prompt) for prompt in prompts))
    return (await scrape(ask)).since(before)


async def scrape(ask: Ask) -> Counts:
    """Return the engine's counts.

    Raises:
        CanaryError: ``/metrics`` did not answer.
    """
    status, text = await ask("GET", "/metrics", None)
    if status != 200:
        raise CanaryError(f"/metrics answered {status}")
    return read_counts(text.decode(errors="replace"))


class CanaryError(Exception):
    """Error: the engine did not answer a request that any engine answers."""


async def _answer(ask: Ask, prompt: str, tokens: int) -> None:
    wanted: dict[str, Any] = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    chat = {"messages": [{"role": "user", "content": prompt}], **wanted}
    status, text = await ask("POST", "/invocations", chat)
    if status == 400:  # a model without a chat template
        status, text = await ask("POST", "/invocations", {"prompt": prompt, **wanted})
    if status != 200:
        raise CanaryError(f"/invocations answered {status}: {text.decode(errors='replace')[:300]}")


async def verdict(ask: Ask, settings: Settings, speculation: Speculation) -> tuple[str | None, str]:
    """Return what is wrong with the drafting (None if nothing) and a sentence on the counts.

    With a table of K by batch size it sends only as many requests at once as the first row is for, so that
    K is known.

    Raises:
        CanaryError: the engine did not answer.
    """
    profile = read_head_profile(speculation)
    prompts = profile.prompts if profile else PROMPTS
    _, most, k = (
        speculation.table[0] if speculation.table else (1, settings.canary_at_once, speculation.tokens)
    )
    at_once = min(settings.canary_at_once, most)
    counts = await look(ask, prompts[: settings.canary_prompts], settings.canary_tokens, at_once)
    whose = "against the head's own profile" if profile else "the head has no profile of its own"
    rates = ", ".join(f"{rate:.3f}" for rate in counts.survival)
    seen = (
        f"{counts.drafts} drafts in {counts.generated} tokens, acceptance length "
        f"{counts.acceptance_length:.2f}, survival [{rates}], {whose}"
    )
    if profile is not None:
        profile = replace(profile, survival=profile.survival[:k])
    always = k > 0 and not speculation.from_text
    return fault(counts, parallel=speculation.parallel and k > 1, profile=profile, always=always), seen
