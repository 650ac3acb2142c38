"""The stand-ins' own scorecard: its record, and its table on the page "Is P-EAGLE right for your traffic?".

Two sizes: all packs with contexts up to 2,048 tokens, and those with long prompts up to the model's limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.packs import PACKS, load_pack
from peagle_bench.packs.run import PackOptions, run_packs
from peagle_bench.results import provenance
from peagle_bench.results.records import PackRecord
from scripts.bench.comparison import pack_dependencies
from scripts.bench.job import write_json
from scripts.bench.local_stack import LocalStack, Say
from scripts.bench.packs.arms import CLEAN, PLAIN
from scripts.bench.packs.page import short_revision

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "docs" / "reference" / "packs" / "scorecard.json"
PAGE = ROOT / "docs" / "how-to" / "is-it-right.md"
BEGIN = "<!-- scorecard: written by scripts/bench-packs --scorecard -->\n"
END = "<!-- scorecard: end -->"
_RESULTS = {True: "pass", False: "**fail**", None: "not measured"}


@dataclass(frozen=True)
class Size:
    """Packs, and how large they are: ``context`` tokens (None: the model's), ``units`` of each."""

    packs: tuple[str, ...]
    context: int | None
    units: int


SIZES = (Size(tuple(PACKS), 2048, 12), Size(("rag", "long-context"), None, 6))


def measure(stack: LocalStack, folder: Path, say: Say) -> None:
    """Measure every size, and write the record and the page."""
    described = [describe_endpoint(stack.session, name) for name in (PLAIN, CLEAN)]
    around = pack_dependencies(stack, described, 0, say)
    rows: list[dict[str, Any]] = []
    for number, size in enumerate(SIZES):
        packs = [load_pack(name) for name in size.packs]
        options = PackOptions(0, size.units, size.context)
        found = run_packs([nullcontext(described)], packs, folder / f"{number}.jsonl", options, around)
        rows += [_row(one, size) for one in found.results.packs]
    write_json(RECORD, {"provenance": provenance.origin(seed=0), "rows": rows})
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


def read() -> dict[str, Any]:
    """Read the record."""
    document: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return document


def with_table(page: str, document: Mapping[str, Any]) -> str:
    """Return the page with the table of this record."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has lost the place of its table")
    return f"{before}{BEGIN}{_table(document['rows'])}\n\n{_origin(document['provenance'])}\n{END}{after}"


def _row(record: PackRecord, size: Size) -> dict[str, Any]:
    return {
        "pack": record.pack,
        "context": size.context,
        "units": size.units,
        "passed": record.passed,
        "figure": record.figure,
        "why": record.why,
        "requests": record.requests,
        "seconds": round(record.seconds, 1),
        "checks": [{"name": one.name, "passed": one.passed, "summary": one.summary} for one in record.checks],
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| pack | up to | result | figure | lowest against the first part | answers |",
        "|---|---:|---|---|---|---|",
    ]
    for row in rows:
        context = "the model's limit" if row["context"] is None else f"{row['context']:,}"
        said = (row["figure"] if row["passed"] else row["why"]).replace("|", "/")
        checks = {each["name"]: each["summary"].split("; ") for each in row["checks"]}
        fall = next((told[1:2] for name, told in checks.items() if name.startswith("acceptance by")), ["-"])
        lowest = fall[0].partition(" of the acceptance")[0]
        cells = (context, _RESULTS[row["passed"]], said, lowest, checks.get("identity", ["-"])[0])
        lines.append(f"| `{row['pack']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _origin(told: Mapping[str, Any]) -> str:
    machine = told["machine"]
    return (
        f"Measured on {told['date'][:10]} on {machine['cores']} cores of {machine['processor']}, git "
        f"{short_revision(told['git_revision'] or '')}; one deployment of each endpoint."
    )
