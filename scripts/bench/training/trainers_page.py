"""docs/reference/trainers.md out of the record of `scripts/bench-trainers`, and its decision. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.results.records import Interval

SPECULATORS, USERS = "speculators", "automodel"
MARGIN = 0.05  #: loss of acceptance length that "not worse" excludes
#: Of each prompt, tokens and verification steps of its answer.
Answers = Mapping[str, Sequence[float]]

INTRODUCTION = """\
# Two trainers of a P-EAGLE head

`automodel` is the code of users' heads (NeMo AutoModel, AdamW, `container/peagle_train`). `speculators` (with
Muon) trains the EAGLE-3 head of the small stand-in family. Which of them trains that family's P-EAGLE head in
`scripts/train-tiny` follows from this page: the users' code, unless it is worse in the same budget.

Both trained from the same planted start, on the same rollouts of the target that ships, with the same budget
of CPU seconds of the process tree, on one core each.
"""
LIMITS = """\
## Limits
- **Small stand-in weights**, minutes of training on a CPU. The figures decide which code trains the head of
  the stand-in family. They say nothing about either trainer on a GPU.
- Both see three rollouts of 256 tokens a step, the same depths and sampling ratios, and a cosine to zero
  after 4% of warm-up. Loss, optimizer and precision are each trainer's own. The learning rate of each was
  searched; its other settings were not.
- speculators reads the target's hidden states from files. `scripts/train-tiny` writes them for its EAGLE-3
  head in any case, so their cost is not in the budget. AutoModel runs the target in each step, within the
  budget.
- The start has the EAGLE-3 layer that ships. `scripts/train-tiny` starts from one that trained for less long.
"""


def length(answers: Answers) -> float:
    """Return the acceptance length over all answers: tokens for each verification step."""
    return sum(row[0] for row in answers.values()) / sum(row[1] for row in answers.values())


def ratios(users: Sequence[Answers], speculators: Sequence[Answers]) -> tuple[Interval, Interval]:
    """Return the acceptance length of automodel over speculators, paired by prompt; one head a seed.

    The first interval is over prompts and seeds, the second over prompts alone.

    Raises:
        ValueError: fewer than two prompts.
    """
    signs = (1, -1, -1, 1)
    pairs = list(zip(users, speculators, strict=True))
    tables = [{prompt: (*one[prompt], *other[prompt]) for prompt in one} for one, other in pairs]
    columns = {prompt: zip(*(table[prompt] for table in tables), strict=True) for prompt in tables[0]}
    merged = {prompt: [sum(column) for column in each] for prompt, each in columns.items()}
    return ratio(tables, signs), ratio([merged], signs)


def verdict(found: Interval) -> str:
    """Return the decision in one sentence; ``found`` is the ratio of `ratios`."""
    if found.high < 1:
        worse, least, most = (f"{1 - each:.1%}" for each in (found.value, found.high, found.low))
        return (
            f"automodel is worse by {worse} [{least}, {most}] in the same budget, so speculators has to train"
            " the head of the small family."
        )
    told = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}] times the acceptance length"
    if found.low >= 1 - MARGIN:
        return (
            f"automodel is not worse in the same budget ({told}), so it trains the head of the small family."
        )
    return (
        f"Undecided: automodel is not significantly worse in the same budget ({told}), but a loss of"
        f" {MARGIN:.0%} is not excluded; measure more seeds."
    )


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a record."""
    both, alone = (Interval(**record[name]) for name in ("ratio", "ratio_over_prompts"))
    before, origin, prompts = record["references"], record["origin"], record["prompts"]
    machine, seeds = origin["machine"], len(record["finals"]) // 2
    over = f"prompts and {seeds} seeds" if seeds > 1 else "prompts; one seed, so its spread is not in it:"
    how = (
        f"Acceptance length at K={record['num_speculative_tokens']}, temperature 0, in vLLM on the local"
        f" SageMaker, on {prompts['final']} prompts from files that neither target nor heads were trained on."
        f" The start has {before['start']:.2f}; the head that ships, trained for longer and on a GPU, has"
        f" {before['shipped']:.2f}. Ratio of automodel to speculators, paired by prompt: {both.value:.3f};"
        f" 95% confidence interval over {over} [{both.low:.3f}, {both.high:.3f}], over prompts alone"
        f" [{alone.low:.3f}, {alone.high:.3f}]."
    )
    tried = (
        f"Runs of {record['short_s']:g} CPU seconds, measured on {prompts['tuning']} other prompts. The final"
        " heads have the rate of the greatest acceptance length."
        f"{''.join(f' {note}' for note in edges(record))}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in record["libraries"].items())
    precision = ", ".join(f"{value} ({name})" for name, value in record["precision"].items())
    source = (
        f"Made by `{record['command']}` on {origin['date'][:10]}: {machine['processor']},"
        f" {machine['cores']} cores, revision {origin['git_revision'] or 'unknown'}; budget"
        f" {record['budget_s']:g} CPU seconds a head; {precision}; {versions}. {record['note']} All figures:"
        " `docs/reference/trainers.json`."
    )
    return "\n".join(
        [
            *(
                INTRODUCTION + wrapped(spent(record["finals"])) + "\n",
                wrapped(f"**{record['decision']}**"),
                "",
                table(record["finals"]),
                wrapped(how),
                "",
            ),
            *("## Learning rates", wrapped(tried), "", table(record["short"]), LIMITS, wrapped(source), ""),
        ]
    )


def spent(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the CPU seconds that each trainer took for a head, on average."""
    took = {
        trainer: fmean(run["cpu_s"] for run in runs if run["trainer"] == trainer)
        for trainer in (SPECULATORS, USERS)
    }
    more = took[USERS] / took[SPECULATORS] - 1
    each = ", ".join(f"{trainer} {seconds:.0f}" for trainer, seconds in took.items())
    how = f"{abs(more):.0%} {'more' if more > 0 else 'less'}"
    return f"The seconds that they took are not the same: {each} ({how})."


def edges(record: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each trainer whose best rate is the lowest or the highest that was tried."""
    found = []
    for trainer in (SPECULATORS, USERS):
        rates = sorted(run["rate"] for run in record["short"] if run["trainer"] == trainer)
        (best,) = {run["rate"] for run in record["finals"] if run["trainer"] == trainer}
        if best in (rates[0], rates[-1]):
            edge = "least" if best == rates[0] else "greatest"
            found.append(f"That of {trainer} is the {edge} that was tried, so another may be better still.")
    return found


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of runs."""
    lines = ["| trainer | learning rate | seed | steps | CPU seconds | acceptance length |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for run in sorted(runs, key=lambda each: (each["trainer"] != SPECULATORS, each["rate"], each["seed"])):
        cells = [run["trainer"], f"{run['rate']:g}", run["seed"], f"{run['steps']:,}", f"{run['cpu_s']:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} | {run['acceptance_length']:.3f} |")
    return "\n".join([*lines, ""])


def wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 120 characters; no word is broken."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
