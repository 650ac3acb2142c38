"""What the tutorial's training gained: docs/reference/learning-gain.md, and the figures in the tutorial.

All figures are of the recorded run, docs/reference/learning-gain.json, which ``scripts/learn-demo --record``
writes. Without a record each figure is NNN. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from peagle_learn.stored_data import VALIDATION
from scripts.bench.marked_page import insert

Record = Mapping[str, Any]
BEGIN, END = "<!-- gain: scripts/reference writes this part -->", "<!-- end of gain -->"
MISSING = "NNN"  #: a figure that is not measured yet
SETS = {
    "held_out": "held-out questions to the shop",
    "general": "general: chat, JSON, code",
    "long_context": "long prompts",
}
STAGES = {"data": "answers", "train": "training", "prove": "proof"}
PAGE = """\
# What a training gained

This page has the figures of one run of [Train a head for your model](../tutorials/train-a-head.md):
`scripts/learn-demo` on the local SageMaker, with the real vLLM and the real trainer. SmolLM2-135M-Instruct
answers the customers of a shop in a house style. The head before is the P-EAGLE head that ships with the
project, which has not seen that style ([why this traffic](../explanation/training.md#new-traffic)).

{table}

{conditions}

{decision}

## Cost
{costs}

## Limits
- The figures are of SmolLM2-135M-Instruct with heads of our own training, on two cores of a CPU. They say
  nothing about the gain on a large model, on a GPU or on AWS, where this has not run.
- The shipped head was trained in [one short epoch](../explanation/training.md#what-limits-these-heads), so
  it is easy to improve. A published head has less to gain.
- The new traffic is narrow: most answers have one form. A head gains most if answers are similar. Measure
  it for your traffic: `peagle-sm learn prove`.
- There was one run, with one seed, greedy answers, and one request at a time. The intervals are over
  prompts, not over runs.
- The speed of the two heads is compared on cores that three engines, client and server share. It depends on
  other work on the machine; the acceptance does not. So the speed is less certain than its interval.
- The general prompts may lose more in this proof (`prove.most_general_loss`) than by default, because they
  are few.

{origin}
"""


def gain_page(record: Record | None) -> str:
    """Return the page of a recorded run; without one, the page with its figures missing."""
    return PAGE.format(
        table=gain_table(record),
        conditions=_wrapped(_conditions(record)),
        decision=_wrapped(_decision(record)),
        costs=_costs(record),
        origin=_wrapped(_origin(record)),
    )


def tutorial_page(text: str, record: Record | None) -> str:
    """Return the tutorial with the figures of the run written anew.

    Raises:
        ValueError: the page has no place for them.
    """
    minutes = _minutes(None if record is None else sum(record["seconds"].values()))
    sentence = (
        f"One recorded run took {minutes} minutes from the first command to the end of the proof, on "
        f"{_machine(record)}. The proof measured:"
    )
    return insert(text, BEGIN, END, f"{_wrapped(sentence)}\n\n{gain_table(record)}")


def gain_table(record: Record | None) -> str:
    """Return a row for each measured set of prompts."""
    head = "| prompts | number | acceptance length before | after | ratio, 95% | speed, ratio, 95% |"
    lines = [head, "|---|---:|---:|---:|---|---|"]
    for name, title in SETS.items():
        evidence = None if record is None else record["proof"]["evidence"][name]
        if record is not None and evidence is None:
            continue  # the proof ended before
        lengths = (_number(evidence, "serving_length"), _number(evidence, "candidate_length"))
        ratios = (_ratio(evidence, "acceptance"), _ratio(evidence, "speed"))
        count = MISSING if evidence is None else f"{evidence['prompts']:,}"
        lines.append(f"| {title} | {count} | {' | '.join((*lengths, *ratios))} |")
    return "\n".join(lines)


def _number(evidence: Record | None, name: str) -> str:
    if evidence is None:
        return MISSING
    return "-" if evidence[name] is None else f"{evidence[name]:.2f}"


def _ratio(evidence: Record | None, name: str) -> str:
    if evidence is None:
        return MISSING
    ratio = evidence[name]
    return "-" if ratio is None else f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


def _conditions(record: Record | None) -> str:
    drafts, tokens = MISSING, MISSING
    if record is not None:
        drafts = str(record["proof"]["bound"]["num_speculative_tokens"])
        tokens = str(record["prove"]["max_tokens"])
    return (
        f"Decoding was greedy, with {drafts} draft tokens and answers of at most {tokens} tokens. The heads "
        "took turns, one request at a time. The acceptance length is the number of tokens for each pass of "
        "the target."
    )


def _decision(record: Record | None) -> str:
    if record is None:
        return f"The head was {MISSING}. Its answers were compared with the target's own without speculation."
    proof = record["proof"]
    decision, checks = proof["decision"], proof["evidence"]["identity"]
    reasons = "; ".join(decision["reasons"])
    words = "The head was offered." if decision["offered"] else f"The head was **not** offered: {reasons}."
    if not checks:
        return words
    listed = ". ".join(f"{each['name'].capitalize()}: {each['summary']}" for each in checks)
    return f"{words} Its answers were compared with the target's own without speculation. {listed}."


def _costs(record: Record | None) -> str:
    details = dict.fromkeys(STAGES, MISSING)
    seconds = dict[str, float]()
    if record is not None:
        data, training, seconds = record["data"], record["training"], record["seconds"]
        counts, settings = data["prompts"], training["settings"]
        losses = [f"{each['loss']:.2f}" for each in training["held_out"]]
        documents = settings["micro_batch_size"] * settings["grad_accumulation_steps"]
        rows_of = data["rows"]
        details = {
            "data": f"{sum(rows_of.values()):,} answers: {counts['training']:,} of the shop and "
            f"{counts.get('general, trained', 0):,} general ones for training, "
            f"{rows_of[VALIDATION]:,} held out; "
            f"{sum(data['tokens'].values()):,} tokens with their prompts",
            "train": f"{training['steps']:,} steps of {documents} answers, rate "
            f"{settings['learning_rate']:g}; {training['parameters']:,} parameters, "
            f"{training['peak_memory_gib']} GiB; held-out loss {losses[0]} to {losses[-1]}",
            "prove": "two more endpoints, three arms in turns, and the checks of the answers",
        }
    rows = [
        f"| {title} | {_minutes(seconds.get(name))} | {details[name]} |" for name, title in STAGES.items()
    ]
    return "\n".join(["| step | minutes | details |", "|---|---:|---|", *rows])


def _minutes(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds / 60:.1f}"


def _machine(record: Record | None) -> str:
    if record is None:
        return f"two cores ({MISSING})"
    machine = record["origin"]["machine"]
    return f"{machine['cores']} cores of {machine['processor']}"


def _origin(record: Record | None) -> str:
    if record is None:
        return f"The figures are from a run of {MISSING}."
    origin, stops = record["origin"], record["sittings"] - 1
    libraries = ", ".join(f"{name} {each}" for name, each in record["training"]["libraries"].items())
    broken = "without a break" if not stops else f"with {stops} stop{'' if stops == 1 else 's'}"
    return (
        f"The figures are from `scripts/learn-demo FOLDER --record`, run on {origin['date'][:10]} {broken}: "
        f"{_machine(record)}; seed {origin['seed']}; peagle-sm {origin['versions']['peagle-sm']}, "
        f"vLLM {record['engine']}, {libraries}. {origin['note']} All figures: "
        "`docs/reference/learning-gain.json`."
    )


def _wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 130 characters; no word is broken."""
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)
