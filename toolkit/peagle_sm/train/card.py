"""The model cards of the small family: what it was trained on, how, and what it was measured to do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from peagle_sm.train import corpus, heads, rollout

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

| held-out loss, nats a token | |
|---|---|
| stretches of 512 tokens | {held_out_loss} |
| positions 512 to 1,023 of 8,192 | {held_out_loss_512_1023} |
| positions 4,096 to 8,191 of 8,192 | {held_out_loss_4096_8191} |

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
  in one pass, {steps:,} steps. It starts from EAGLE-3's layer as it was after the first half, with attention
  planted that finds the anchor and that copies from where the text stood before
  (`peagle_sm/train/warm_start.py`).
"""
_FURTHER = """Then both went on on one {device}, {steps:,} steps of {documents_a_step} rollouts each, from
{rollouts:,} rollouts behind whole docstrings and cut files: prompts of up to 320 tokens, and 176 of the
target's own (`python -m peagle_sm.train.device`). EAGLE-3 was unrolled {unrolled} deep, in {eagle3_minutes}
minutes, P-EAGLE trained over {depths} depths, in {peagle_minutes}, both at once. The loss: cross-entropy with
the target's distribution and, half and half, with its most likely token; Muon, rate {rate}, seed {seed}.
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


def target_section(facts: dict[str, Any], counts: dict[str, Any]) -> str:
    """How the target was trained, and its loss."""
    return _TARGET.format(**facts, **counts, sources=sources())


def head_section(facts: dict[str, Any], rollouts: dict[str, Any]) -> str:
    """How the heads were trained."""
    return _HEADS.format(
        **facts,
        sequences=rollouts["sequences"],
        rollout_tokens=rollouts["tokens"],
        prompt_tokens=rollout.PROMPT_TOKENS,
        new_tokens=rollout.NEW_TOKENS,
        eagle3_layers=heads.EAGLE3_LAYERS,
        peagle_layers=heads.PEAGLE_LAYERS,
        peagle_heads=heads.PEAGLE_HEADS,
        peagle_kv_heads=heads.PEAGLE_KEY_VALUE_HEADS,
    )


def further_section(facts: dict[str, dict[str, Any]]) -> str:
    """How the heads went on, on an accelerator."""
    shared = {name: value for name, value in facts["p-eagle"].items() if name != "minutes"}
    minutes = {"eagle3_minutes": facts["eagle3"]["minutes"], "peagle_minutes": facts["p-eagle"]["minutes"]}
    return _FURTHER.format(**shared, **minutes)


def acceptance_section(bench: dict[str, Any]) -> str:
    """Acceptance, from the result file of ``scripts/bench-modes``."""
    lines = ["## Acceptance, in vLLM on a CPU, temperature 0", ""]
    for title, run in bench["engines"]["eager"]["finals"].items():
        report = run["report"]
        lines += [f"{title}, {report['prompts']} prompts:", ""]
        lines += ["| mode | K | acceptance length | distinct 4-grams |", "|---|---|---|---|"]
        for row in report["arms"]:
            k, length = row["num_speculative_tokens"] or "-", row["acceptance_length"]
            lines.append(f"| {row['mode']} | {k} | {length:.2f} | {row['distinct_4_grams']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def card(part: str, work: dict[str, dict[str, Any]], bench: dict[str, Any] | None) -> str:
    """The card of ``part`` (target, eagle3 or p-eagle) as Markdown with the hub's front matter."""
    matter = "---\nlicense: apache-2.0\nlibrary_name: vllm\nlanguage: code\n---\n"
    sections = [f"{matter}\n# {_TITLES[part]}\n\n{_NOTE}"]
    if part != "target":
        sections.append(head_section(work["heads"], work["rollouts"]))
        if "device" in work:
            sections.append(further_section(work["device"]))
    sections.append(target_section(work["target"], work["corpus"]))
    if bench is not None:
        sections.append(acceptance_section(bench))
    return "\n".join(sections)


def main() -> None:
    """Write ``README.md`` into each part of ``--weights``, from the facts that are in ``--work``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--bench", type=Path, help="results/bench-modes.json, for the acceptance")
    options = parser.parse_args()
    names = ["corpus", "target", "rollouts", "heads"]
    # Only where the heads went on to an accelerator.
    names += [name for name in ("device",) if (options.work / f"{name}.json").is_file()]
    work = {name: json.loads((options.work / f"{name}.json").read_text()) for name in names}
    bench = json.loads(options.bench.read_text()) if options.bench else None
    for part in _TITLES:
        (options.weights / part / "README.md").write_text(card(part, work, bench))


if __name__ == "__main__":
    main()
