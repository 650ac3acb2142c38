"""The records of the safety campaigns of `learn`, and the page that shows them.

One line of JSON for each damaged head and for each sequence of kills, with date, revision and machine. Both
campaigns append to their file and write the page again; a figure on it is counted from the files.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peagle_bench.results import provenance
from scripts.bench.training.damaged_heads import KINDS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "reference" / "learn-safety"
HEADS, KILLS = FOLDER / "damaged-heads.jsonl", FOLDER / "kills.jsonl"
PAGE = ROOT / "docs" / "reference" / "learn-safety.md"
WAYS = ("files", "canary", "early look", "whole measurement")
Row = Mapping[str, Any]


def origin(seed: int) -> dict[str, Any]:
    """Return where and when something was measured, in brief."""
    found = provenance.origin(seed)
    return {
        "date": found["date"],
        "git_revision": found["git_revision"],
        "processor": found["machine"]["processor"],
        "cores": found["machine"]["cores"],
        "load": round(provenance.load_now(), 1),
    }


def recorded(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a record."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, one: Any) -> None:
    """Add one row, a dataclass, and write the page again if it is the record that the page shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")
    if path.parent == FOLDER:
        PAGE.write_text(page(recorded(HEADS), recorded(KILLS)))


def wrong_heads(rows: Sequence[Row]) -> list[int]:
    """Return the seeds of damaged heads that were offered or promoted."""
    return [row["seed"] for row in rows if row["offered"] or row["promoted"]]


def kills_of(rows: Sequence[Row]) -> Counter[str]:
    """Return how many processes were really killed, by the step that they were in."""
    return Counter(kill["step"] for row in rows for kill in row["kills"] if "ended" not in kill)


def page(heads: Sequence[Row], kills: Sequence[Row]) -> str:
    """Return docs/reference/learn-safety.md."""
    return "\n".join([*_heads_part(heads), *_kills_part(kills), *_machines([*heads, *kills])]) + "\n"


HEADS_TEXT = """\
# How safe `learn` is

Two campaigns, with the real engine and the real trainer on the local SageMaker and small stand-in weights.
Nothing of this has run on AWS. Both continue their records, which lie beside this page:
`scripts/learn-safety damage` and `scripts/learn-safety kills`.

## Damaged heads
Each head is made by its seed from the shipped one, then goes through `learn prove` and `learn promote` beside
an endpoint with the whole head.

| kind | variants |
|---|---|
| truncated | the file of the weights ends early |
| shuffled | all, half or a fifth of the values of each matrix change places |
| wrong layers | a tensor is missing or renamed; the count of layers is wrong; it reads layers that it \
was not trained on, or that the target lacks; matrices of its two layers are swapped |
| untrained | all values, one layer, or fc are fresh |
| another target | another hidden size or vocabulary; really trained for a copy of the target with noise |
| over-trained | weights that ran away; really trained on two documents only |
"""
KILLS_TEXT = """\
## Kills of `learn run`
A run of data, training, proof and promotion is a process of its own. It gets SIGKILL at random moments of its
whole duration, is started again each time, and must be done in the end. After each kill and at the end the
account is looked at from outside, with boto3 alone:

- always: each endpoint has a schedule that deletes it within a day, each running training job a run time;
- at the end: only the serving endpoint is there, with the new head; one training job; no alarm of the
  promotion; no incomplete upload;
- a finished step stays as it was, and the serving endpoint got no more requests for answers than there are
  prompts, and those in flight at a kill.
"""


def _heads_part(rows: Sequence[Row]) -> list[str]:
    engines = sum(row["decided_by"] != "files" for row in rows)
    lines = [
        HEADS_TEXT,
        f"**{len(rows)} of 200 heads; {engines} of them took an engine. Offered or promoted:"
        f" {len(wrong_heads(rows)) or 'none'}.**",
        "",
        "| kind | heads | by its files | by the canary | by an early look | by the whole measurement |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        by = Counter(row["decided_by"] for row in own)
        lines.append(f"| {kind} | {len(own)} | " + " | ".join(str(by[way]) for way in WAYS) + " |")
    lines += ["", "Acceptance of those that were measured, over that of the whole head, least and most:", ""]
    lines += ["| kind | variant | heads | acceptance | prompts asked |", "|---|---|---:|---|---|"]
    measured = [row for row in rows if row["acceptance"]]
    for kind, variant in dict.fromkeys((row["kind"], row["variant"]) for row in measured):
        own = [row for row in measured if (row["kind"], row["variant"]) == (kind, variant)]
        values = sorted(row["acceptance"]["value"] for row in own)
        asked = sorted({row["prompts"] for row in own})
        lines.append(
            f"| {kind} | {variant} | {len(own)} | {values[0]:.2f} to {values[-1]:.2f} |"
            f" {', '.join(map(str, asked))} |"
        )
    return [*lines, ""]


def _kills_part(rows: Sequence[Row]) -> list[str]:
    where = kills_of(rows)
    faults = [fault for row in rows for fault in row["faults"]]
    return [
        KILLS_TEXT,
        f"**{sum(where.values())} kills in {len(rows)} sequences; faults: {len(faults) or 'none'}.**",
        "",
        "| killed in | kills |",
        "|---|---:|",
        *(f"| {step} | {count} |" for step, count in sorted(where.items())),
        "",
    ]


def _machines(rows: Sequence[Row]) -> list[str]:
    origins = [row["provenance"] for row in rows]
    if not origins:
        return []
    dates = sorted(each["date"][:10] for each in origins)
    loads = sorted(each["load"] for each in origins)
    where = sorted({f"{each['processor']}, {each['cores']} cores" for each in origins})
    return [
        f"Measured from {dates[0]} to {dates[-1]} on {'; '.join(where)}, shared, load average {loads[0]} to"
        f" {loads[-1]}. Each row of the records has its date and revision."
    ]


if __name__ == "__main__":
    PAGE.write_text(page(recorded(HEADS), recorded(KILLS)))
    print(f"written: {PAGE}", file=sys.stderr)
