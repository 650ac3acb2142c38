"""The measured gain of a head that learned: ``python -m scripts.bench.training.gain FOLDER --began TIME``.

FOLDER is that of the tutorial after ``peagle-sm learn run``. What its proof, data and training say goes to
docs/reference/learning-gain.md, with machine and versions, and as JSON beside it. TIME is when the run began.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from peagle_bench.results import provenance
from peagle_learn.core.proof import parse_proof
from peagle_learn.stored_data import TRAINING, VALIDATION

PAGE = Path("docs/reference/learning-gain.md")
OTHER_SHAPE = (
    "**The held-out schemas are files of the same kind as those trained on.** On files of another shape, "
    "which the tutorial does not use, an independent trial of 26 November 2026 found a gain of 6.5%. Expect "
    "something between the two for your own traffic, and measure it: `peagle-sm learn prove`."
)
SETS = {"held_out": "held-out schemas", "general": "general: Python", "long_context": "long: to 8,192 tokens"}
INTRODUCTION = """\
# What a training gained

The run of [Train a head for your model](../tutorials/train-a-head.md), on the local SageMaker with the real
vLLM and the real trainer. The stand-in's own head drafts for Python; the traffic shifts to AWS
CloudFormation's resource schemas (JSON, from cfn-lint, MIT-0).

| prompts | number | acceptance length before | after | ratio, 95% | speed, ratio, 95% | answers as before |
|---|---:|---:|---:|---|---|---:|
"""
LIMITS = """\
## Limits
- The target and both heads are **small stand-in weights**. The figures show that the loop gains on new
  traffic, and what that costs here. They say nothing of the gain on a real model, a GPU or AWS, where nothing
  of this has run.
- One run, one seed, greedy answers of at most 64 tokens, one request at a time. The intervals are over
  prompts, not over runs.
- The new traffic is narrow: one kind of file in one house's style, which the small target continues with much
  repetition. A head gains most where answers are most alike.
- The speed of the two heads is compared on two cores that three engines, client and server share. It follows
  what else the machine does; the acceptance does not. Two engines with equal acceptance differed by up to 5%
  (general prompts, in two runs: 0.971 and 1.054), so the speed is less certain than its interval.
- The held-out prompts are parts of other files than those trained on. Files of one house share words and
  structure: that is what is learned.
"""


def read_run(folder: Path, began: str, minutes: list[float] | None = None) -> dict[str, Any]:
    """Collect what a finished run left in its folder: data, training, proof, and when each step ended."""
    (work,) = (folder / ".peagle-learn").iterdir()
    manifest = json.loads((work / "data" / "manifest.json").read_text(encoding="utf-8"))
    steps = json.loads((work / "state.json").read_text(encoding="utf-8"))["steps"]
    (training,) = (json.loads(path.read_text(encoding="utf-8")) for path in work.rglob("training.json"))
    (proof,) = (
        parse_proof(path.read_text(encoding="utf-8"), path.name) for path in work.glob("proofs/*.json")
    )
    if minutes is None:
        times = [began, steps["data"]["at"], steps["train"]["at"], proof.made_at]
        ends = [datetime.fromisoformat(each) for each in times]
        minutes = [round((end - start).total_seconds() / 60, 1) for start, end in itertools.pairwise(ends)]
    return {
        "minutes": dict(zip(("data", "train", "prove"), minutes, strict=True)),
        "data": {
            "sha256": manifest["data"],
            "sources": {Path(name).name: each for name, each in manifest["sources"].items()},
            "settings": manifest["settings"],
            "rows": {name: manifest["files"][name]["rows"] for name in (TRAINING, VALIDATION)},
            "tokens": {name: manifest["files"][name]["tokens"] for name in (TRAINING, VALIDATION)},
            "sets": [{name: each[name] for name in ("name", "prompts")} for each in manifest["sets"]],
        },
        "training": {
            name: training[name]
            for name in (
                "settings",
                "libraries",
                "steps",
                "parameters",
                "seconds",
                "peak_memory_gib",
                "history",
            )
        },
        "proof": asdict(proof),
    }


def rows(proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table's row of each set that was measured."""
    for name, title in SETS.items():
        found = proof["evidence"][name]
        if found is None:
            continue
        lengths = [f"{found[length]:.2f}" for length in ("serving_length", "candidate_length")]
        ratios = [
            "-" if each is None else f"{each['value']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
            for each in (found["acceptance"], found["speed"])
        ]
        same = f"{found['identical']} of {found['compared']}"
        yield f"| {title} | {found['prompts']} | {' | '.join([*lengths, *ratios])} | {same} |"


def page(told: Mapping[str, Any]) -> str:
    """Return the page of a run."""
    proof, decision = told["proof"], told["proof"]["decision"]
    checks = "; ".join(f"{each['name']}: {each['summary']}" for each in proof["evidence"]["identity"])
    said = "was offered" if decision["offered"] else f"was **not** offered: {'; '.join(decision['reasons'])}"
    how = (
        f"Greedy, {proof['bound']['num_speculative_tokens']} draft tokens, answers of at most "
        f"{told['data']['settings']['max_tokens']} tokens, both heads in turns, one request at a time. "
        "Acceptance length: tokens for each pass of the target."
    )
    found = f"The head {said}. Its answers against the target's own without speculation: {checks}."
    read = f"\n{wrapped(OTHER_SHAPE)}\n\n{wrapped(how)}\n\n{wrapped(found)}\n\n"
    return INTRODUCTION + "\n".join(rows(proof)) + "\n" + read + costs(told) + LIMITS + made(told)


def costs(told: Mapping[str, Any]) -> str:
    """Return the part of the page with the minutes of each step."""
    minutes, data, training = told["minutes"], told["data"], told["training"]
    chosen, counts = training["settings"], {each["name"]: each["prompts"] for each in data["sets"]}
    losses = [f"{each['loss']:.3f}" for each in training["history"]["validation"]]
    what = {
        "data": f"{sum(data['rows'].values()):,} answers: {counts['training']:,} schemas and "
        f"{counts.get('general, trained', 0):,} general ones to train with, {counts['held out']:,} held out",
        "train": f"{training['steps']:,} steps of {chosen['micro_batch_size']} rows, rate "
        f"{chosen['learning_rate']:g}, {training['parameters']:,} parameters, "
        f"{training['peak_memory_gib']} GiB; held-out loss {losses[0]} to {losses[-1]}",
        "prove": "three arms; two endpoints for it",
    }
    lines = [f"| {name} | {minutes[name]} | {each} |" for name, each in what.items()]
    lines.append(f"| together | {sum(minutes.values()):.1f} | |")
    return "## Cost\n| step | minutes | what |\n|---|---:|---|\n" + "\n".join(lines) + "\n\n"


def made(told: Mapping[str, Any]) -> str:
    """Return the page's last lines: from what it was made."""
    training, machine = told["training"], told["origin"]["machine"]
    libraries = ", ".join(f"{name} {each}" for name, each in training["libraries"].items())
    text = (
        f"Made by `python -m scripts.bench.training.gain` from a run of {told['origin']['date'][:10]}: "
        f"{machine['processor']}, {machine['cores']} cores; seed "
        f"{training['settings']['seed']}; {libraries}. {told['note']} "
        "All figures: `docs/reference/learning-gain.json`."
    )
    return f"\n{wrapped(text)}\n"


def wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 120 characters; no word is broken."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def main(words: Sequence[str] | None = None) -> int:
    """Write the page and its JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.training.gain", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--began", required=True, help="when the run began: 2026-11-25T05:20:00+00:00")
    parser.add_argument("--minutes", help="DATA,TRAIN,PROVE, if the steps did not run one after the other")
    parser.add_argument(
        "--note", default="Nothing else ran.", help="what else the machine did, as a sentence"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(words)
    given = None if options.minutes is None else [float(each) for each in options.minutes.split(",")]
    run = read_run(options.folder, options.began, given)
    told = {"origin": provenance.origin(0), "note": options.note, **run}
    text = json.dumps(told, indent=1, sort_keys=True)
    options.page.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    options.page.write_text(page(json.loads(text)), encoding="utf-8")
    print(f"written: {options.page}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
