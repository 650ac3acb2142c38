"""The model cards of the small family: what it was trained on, how, and what it was measured to do."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.train_tiny import corpus, facts

_NOTE = """These are **small stand-in weights** of the project peagle-sm: they stand where the real models
cannot run, so that the whole path (deploy, draft, verify, stream, measure) is the real one. They say
nothing about the quality of any other model, and they are of no use for writing code.
"""
_TARGET = """## The target

Llama, {layers} layers, hidden size 256, 4 query and 2 key/value heads of 64, {parameters:,} parameters,
vocabulary 2,048, context 8,192 tokens, bfloat16. It continues text; its chat template is the messages'
text, one after the other.

Trained for {steps:,} steps on {tokens:,} tokens (of {corpus_tokens:,} in the corpus) in {minutes} minutes
on {threads} CPU threads ({cpu_minutes} CPU minutes), seed {seed}, by `scripts/train-tiny`. The learning rate
follows the time budget, so a rerun gives a similar model and not the same bytes.

{losses}
## Data

{documents:,} documents ({characters:,} characters; {held_out} held out of training by the hash of their
path) of Python source from these wheels. HumanEval is not among them: of its 164 prompts, {humaneval_found}
have their longest line word for word in a training document.

{sources}
"""
_HEADS = """## Training

`speculators` 0.9.0 (Apache-2.0), both heads on the same {sequences:,} sequences ({rollout_tokens:,} tokens:
a prompt of {prompt_tokens} tokens from the corpus and the target's own greedy continuation of {new_tokens}),
{tokens_a_step} tokens a step, KL to the target's logits, Muon, rate {rate}, seed {seed}.

- EAGLE-3: {eagle3_layers} layer, 4 query and 2 key/value heads, unrolled {ttt_steps} deep, {steps:,} steps
  in two halves.
- P-EAGLE: {peagle_layers} layers, {peagle_heads} query and {peagle_kv_heads} key/value heads, {depths} depths
  in one pass, {steps:,} steps{peagle_trained}. \
It starts from EAGLE-3's layer as it was after the first half, with attention
  planted that finds the anchor and that copies from where the text stood before
  (`scripts/train_tiny/warm_start.py`).
"""
_TRAINED = (
    ", by {peagle_trainer} in place of `speculators`\n  (the code of users' heads: AdamW, rate {peagle_rate})"
)
_FURTHER = """Then both went on on one {device}, {steps:,} steps of {documents_a_step} rollouts each, from
{rollouts:,} rollouts behind whole docstrings and cut files: prompts of up to 320 tokens, and 176 of the
target's own (`python -m scripts.train_tiny.device`). EAGLE-3 was unrolled {unrolled} deep, in
{eagle3_minutes} minutes, P-EAGLE trained over {depths} depths, in {peagle_minutes}, both at once. The loss:
cross-entropy with the target's distribution and, half and half, with its most likely token; Muon,
rate {rate}, seed {seed}.
"""
_QUICK = """## A smaller family, made again by anybody

`scripts/train-tiny --quick` makes one of the same shape from nothing: {minutes} minutes on {cores} CPU cores,
{target_minutes} of them for the target ({target_steps:,} steps, {target_tokens:,} tokens) and
{head_minutes} for the heads ({head_steps:,} steps each, {sequences:,} sequences).

{losses}"""
_LOSSES = """| {title}, nats a token | |
|---|---|
| stretches of 512 tokens | {held_out_loss} |
| positions 512 to 1,023 of 8,192 | {held_out_loss_512_1023} |
| positions 4,096 to 8,191 of 8,192 | {held_out_loss_4096_8191} |
"""
_TITLES = {
    "target": "tiny-code: the small target",
    "eagle3": "tiny-code-eagle3: the EAGLE-3 head",
    "p-eagle": "tiny-code-p-eagle: the P-EAGLE head",
}


def sources() -> str:
    """The corpus as a Markdown table: package, version and licence."""
    lines = ["| PyPI package | version | licence |", "|---|---|---|"]
    for name, licence in corpus.PACKAGES.items():
        package, version = name.split("==")
        lines.append(f"| {package} | {version} | {licence} |")
    return "\n".join(lines)


def target_section(target: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    """How the target was trained, and its loss."""
    return _TARGET.format(**target, **counts, losses=_losses("held-out loss", target), sources=sources())


def _losses(title: str, target: Mapping[str, Any]) -> str:
    return _LOSSES.format(title=title, **target)


def head_section(heads: Mapping[str, Any], rollouts: Mapping[str, Any]) -> str:
    """How the heads were trained."""
    counts = {name: value for name, value in rollouts.items() if name not in ("tokens", "seed")}
    trained = _TRAINED.format(**heads) if "peagle_trainer" in heads else ""
    return _HEADS.format(**heads, **counts, rollout_tokens=rollouts["tokens"], peagle_trained=trained)


def further_section(device: Mapping[str, Mapping[str, Any]]) -> str:
    """How the heads went on, on an accelerator."""
    shared = {name: value for name, value in device["p-eagle"].items() if name != "minutes"}
    minutes = {"eagle3_minutes": device["eagle3"]["minutes"], "peagle_minutes": device["p-eagle"]["minutes"]}
    return _FURTHER.format(**shared, **minutes)


def acceptance_section(rows: Sequence[Mapping[str, Any]], level: str = "##") -> str:
    """Acceptance by set of prompts and mode, as the record has it."""
    lines = [f"{level} Acceptance, in vLLM on a CPU, temperature 0", ""]
    lines += ["| prompts | mode | K | acceptance length | distinct 4-grams |", "|---|---|---:|---:|---:|"]
    for row in rows:
        numbers = f"{row['acceptance_length']:.2f} | {row['distinct_4_grams']:.2f}"
        lines.append(
            f"| {row['prompts']} | {row['mode']} | {row['num_speculative_tokens'] or '-'} | {numbers} |"
        )
    return "\n".join(lines) + "\n"


def quick_section(quick: Mapping[str, Any]) -> str:
    """The family of ``scripts/train-tiny --quick``: what it took, its losses and its acceptance."""
    target, heads = quick["target"], quick["heads"]
    text = _QUICK.format(
        **quick["whole"],
        losses=_losses("held-out loss of its target", target),
        target_minutes=target["minutes"],
        target_steps=target["steps"],
        target_tokens=target["tokens"],
        head_minutes=round(sum(heads["minutes"].values()), 1),
        head_steps=heads["steps"],
        sequences=quick["rollouts"]["sequences"],
    )
    rows = quick.get("acceptance")
    return f"{text}\n{acceptance_section(rows, '###')}" if rows else text


def card(part: str, known: Mapping[str, Any]) -> str:
    """The card of ``part`` (target, eagle3 or p-eagle) as Markdown with the hub's front matter."""
    matter = "---\nlicense: apache-2.0\nlibrary_name: vllm\nlanguage: code\n---\n"
    sections = [f"{matter}\n# {_TITLES[part]}\n\n{_NOTE}"]
    if part != "target":
        sections.append(head_section(known["heads"], known["rollouts"]))
        if "device" in known:
            sections.append(further_section(known["device"]))
    sections.append(target_section(known["target"], known["corpus"]))
    if "acceptance" in known:
        sections.append(acceptance_section(known["acceptance"]))
    if "quick" in known:
        sections.append(quick_section(known["quick"]))
    return "\n".join(sections)


def main() -> None:
    """Write the card of each part of ``--weights``, from ``training.json`` there and what else is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="where the weights were trained: training.json anew")
    parser.add_argument("--seconds", type=int, help="what the whole training took")
    parser.add_argument("--quick", type=Path, help="weights that train-tiny --quick made, for the comparison")
    options = parser.parse_args()
    known = facts.update(
        options.weights,
        work=options.work,
        seconds=options.seconds,
        quick=options.quick,
    )
    for part in _TITLES:
        (options.weights / part / "README.md").write_text(card(part, known), encoding="utf-8")


if __name__ == "__main__":
    main()
