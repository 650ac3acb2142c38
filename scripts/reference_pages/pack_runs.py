"""Page of the recorded runs of the workload packs: where speculation loses, figures, examples. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from peagle_bench.packs import load_pack
from peagle_bench.report.formatting import with_span
from peagle_bench.report.markdown import markdown_table
from peagle_bench.report.tables import PACK_RESULTS
from peagle_bench.results.records import Interval
from peagle_sm.core.display import Table
from peagle_sm.core.spec.modes import title_of

_PROMPT_CHARACTERS, _ANSWER_CHARACTERS, _COLUMNS = 500, 500, 100
_INTRO = """\
# Runs of the workload packs

**{figures_of}: these figures say nothing about a large model on a GPU.** `scripts/pack-runs` measured them,
and `scripts/reference` wrote this page from their record, `docs/reference/packs/runs.json`. Each prompt went
to an endpoint without speculation, one with EAGLE-3 and one with P-EAGLE in turns, one request at a time, at
temperature 0. [Workload packs](../how-to/packs.md) explains the packs and their checks.

- *Acceptance length*: output tokens per step of the target; without speculation it is 1.
- *Speed-up*: output tokens per second of a request, with its time to first token, relative to no
  speculation. In brackets is the 95% confidence interval over prompts, or over groups of prompts about the
  same documents. Each interval is alone: of twenty, one may miss the true value.
- *Identical*: answers that are the same as without speculation. Of the others, up to 3 of each pack and head
  were asked for again, and scored by the endpoint without speculation.
"""


class Row(NamedTuple):
    """Figures of a kind of prompts with one head."""

    pack: str
    kind: str
    mode: str
    figures: Mapping[str, Any]

    @property
    def speed_up(self) -> Interval | None:
        """Its speed-up; None with fewer than two units."""
        interval = self.figures["speed_up"]
        return None if interval is None else Interval(**interval)

    @property
    def loses(self) -> bool:
        """Whether its speed-up is significantly below 1."""
        return self.speed_up is not None and self.speed_up.high < 1

    def cells(self) -> tuple[str, ...]:
        """Kind, head, acceptance length, speed-up and identical answers."""
        figures = self.figures
        length = figures["acceptance_length"]
        identical = f"{figures['identical']} of {figures['compared']}"
        words = "-" if length is None else f"{length:.2f}"
        return self.kind, title_of(self.mode), words, with_span(self.speed_up), identical


def pack_runs_page(record: Mapping[str, Any]) -> str:
    """Return the page.

    Raises:
        ValueError: the record has no pack, or packs of several targets.
    """
    packs: Mapping[str, Any] = record["packs"]
    targets = {each["figures_of"] for each in packs.values()}
    if len(targets) != 1:
        raise ValueError("docs/reference/packs/runs.json needs packs of one target; run scripts/pack-runs")
    parts = [_INTRO.format(figures_of=targets.pop()), *_losses(packs), *_all_packs(packs)]
    for name, pack in packs.items():
        parts += _section(name, pack)
    return "\n\n".join([*(part.strip() for part in parts), _sources(packs)]) + "\n"


def _rows(name: str, pack: Mapping[str, Any]) -> list[Row]:
    kinds = {kind: None for arm in pack["arms"].values() for kind in arm["kinds"]}
    return [
        Row(name, kind, mode, arm["kinds"][kind])
        for kind in kinds
        for mode, arm in pack["arms"].items()
        if kind in arm["kinds"]
    ]


def _whole(name: str, pack: Mapping[str, Any], kind: str) -> list[Row]:
    return [Row(name, kind, mode, arm["all"]) for mode, arm in pack["arms"].items()]


def _losses(packs: Mapping[str, Any]) -> Iterator[str]:
    yield "## Where speculation loses"
    rows = [
        row
        for name, pack in packs.items()
        for row in (*_rows(name, pack), *_whole(name, pack, "all together"))
    ]
    losing = sorted((row for row in rows if row.loses), key=lambda row: row.figures["speed_up"]["value"])
    if not losing:
        yield "No kind of prompt was significantly slower than without speculation."
        return
    yield "Significantly slower than without speculation were:"
    heads = ("pack", "kind", "head", "acceptance length", "speed-up")
    yield markdown_table(_table(heads, [(row.pack, *row.cells()[:4]) for row in losing]))


def _all_packs(packs: Mapping[str, Any]) -> Iterator[str]:
    yield "## All packs"
    rows = []
    for name, pack in packs.items():
        for row in _whole(name, pack, f"`{name}`"):
            cells = row.cells()
            rows.append((*cells[:2], PACK_RESULTS[pack["arms"][row.mode]["passed"]].lower(), *cells[2:]))
    heads = ("pack", "head", "result", "acceptance length", "speed-up", "identical")
    yield markdown_table(_table(heads, rows))


def _section(name: str, pack: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{name}`"
    rows = _rows(name, pack)
    losing = [f"{row.kind} with {title_of(row.mode)}" for row in rows if row.loses]
    if losing:
        yield f"**Speculation loses**: {', '.join(losing)}."
    size = f"{pack['units']} units, contexts of up to {pack['context']:,} tokens"
    yield f"{load_pack(name).shows.capitalize()} ({size})."
    yield markdown_table(
        _table(("kind", "head", "acceptance length", "speed-up", "identical"), [row.cells() for row in rows])
    )
    lines = []
    for mode, arm in pack["arms"].items():
        result = PACK_RESULTS[arm["passed"]].lower()
        lines.append(f"- {title_of(mode)}, K={arm['num_speculative_tokens']}: {result}")
        shown = [
            f"  - {check}: {_plain(row['summary'])}"
            for check, row in arm["checks"].items()
            if row["passed"] is not True or check == "identity"
        ]
        lines += shown
    yield "\n".join(lines)
    yield from _example(pack["example"])


def _example(example: Mapping[str, Any]) -> Iterator[str]:
    yield f"An example, of the kind {example['kind']}:"
    yield _block(_shortened(example["prompt"], _PROMPT_CHARACTERS))
    yield f"The answer with {title_of(example['mode'])}:"
    yield _block(_shortened(example["answer"], _ANSWER_CHARACTERS))
    if "delivered" in example:
        yield "What the filter delivers of it:"
        yield _block(_shortened(example["delivered"], _ANSWER_CHARACTERS))


def _shortened(text: str, most: int) -> str:
    """Leave out the middle of a long text."""
    text = text.strip()
    if len(text) <= most:
        return text
    return f"{text[: most // 2].rstrip()}\n[...]\n{text[-most // 2 :].lstrip()}"


def _block(text: str) -> str:
    """A block of code, whatever the text has: the fence is longer than any run of backticks in it."""
    lines = [
        line
        for paragraph in text.splitlines() or [""]
        for line in textwrap.wrap(paragraph, _COLUMNS, drop_whitespace=False) or [""]
    ]
    fence = "`" * max(3, *(len(run) + 1 for run in [*re.findall("`+", text), ""]))
    return "\n".join([f"{fence}text", *(line.rstrip() for line in lines), fence])


def _sources(packs: Mapping[str, Any]) -> str:
    rows = []
    for name, pack in packs.items():
        origin = pack["provenance"]
        machine = f"{origin['machine']['cores']} cores of {origin['machine']['processor']}"
        revision = str(origin["git_revision"] or "-")
        revision = revision[:12] + ("+changes" if revision.endswith("+changes") else "")
        engines, minutes = ", ".join(origin["engine_versions"]), f"{pack['seconds'] / 60:.1f}"
        rows.append((f"`{name}`", origin["date"][:10], machine, engines, revision, minutes))
    heads = ("pack", "day", "machine", "vLLM", "git", "minutes")
    return f"## Sources\n\n{markdown_table(_table(heads, rows))}"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table("", heads, tuple(rows), right=("acceptance length", "minutes"))


def _plain(text: str) -> str:
    """Text without a meaning in Markdown."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", " ".join(text.split()))
