"""Place SmolLM2's trained heads among the shipped weights, each with a card that says how it was made.

    python -m scripts.bench.stand_in.place FOLDER RESULTS.jsonl

FOLDER is what ``scripts.bench.stand_in.heads`` trained into. RESULTS is a results file of the three modes,
whose requests have a category: of ``scripts/quickstart --prompts 60``, for one. The card says acceptance by
category from it. Give it a file measured with these heads.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.results.records import ArmRecord, RequestRecord
from peagle_bench.results.result_file import Results, read
from sagemaker_local.paths import weights_dir

CARD = Path(__file__).with_name("card.md")
TITLES = {"p-eagle": "P-EAGLE", "eagle3": "EAGLE-3"}
_MEANING = {
    "p-eagle": "Share of positions where the head's first choice is the target's",
    "eagle3": "Share of positions where all first choices so far are the target's",
}
ORIGIN = "SmolLM2's answers to its training prompts"
"""Subject of the commit that holds the training data."""


def main(folder: Path, results: Path) -> int:
    """Copy both heads, and write their cards."""
    measured = read(results)
    for mode in TITLES:
        model, place = folder / mode / "model", weights_dir() / "smollm2-135m-instruct" / mode
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(model / name, place / name)
        training = json.loads((model / "training.json").read_text(encoding="utf-8"))
        (place / "README.md").write_text(card(mode, training, measured), encoding="utf-8")
        print(f"written: {place}", file=sys.stderr)
    return 0


def card(mode: str, training: Mapping[str, Any], measured: Results) -> str:
    """Return the head's card: ``card.md`` with the figures."""
    settings, data, libraries = (training[name] for name in ("settings", "data", "libraries"))
    first, last = training["history"]["validation"][0], training["history"]["validation"][-1]
    arm = next(arm for arm in measured.arms if arm.mode == mode)
    provenance = measured.header.provenance
    machine = provenance["machine"]
    depths = _depths(last)
    return CARD.read_text(encoding="utf-8").format(
        mode=mode,
        title=TITLES[mode],
        layers=settings["num_draft_layers"] if mode == "p-eagle" else 1,
        parameters=training["parameters"],
        depths=settings["num_depths"],
        vocabulary=settings["draft_vocab_size"],
        documents=data["training"]["documents"],
        tokens=data["training"]["tokens"],
        answers=data["training"]["supervised_tokens"],
        steps=training["steps"],
        step_documents=settings["grad_accumulation_steps"] * settings["micro_batch_size"],
        epochs=settings["epochs"],
        rate=settings["learning_rate"],
        seed=settings["seed"],
        automodel=libraries["nemo-automodel"],
        torch=libraries["torch"],
        origin=ORIGIN,
        held_out=data["validation"]["documents"],
        held_out_answers=data["validation"]["supervised_tokens"],
        meaning=_MEANING[mode],
        shares=_table(["depth", *depths], [["share", *(f"{last[f'accuracy_{n}']:.3f}" for n in depths)]]),
        loss_before=first["loss"],
        loss_after=last["loss"],
        prompts=measured.header.config["workload"]["prompts"],
        max_tokens=measured.header.config["max_tokens"],
        machine=f"{machine['processor']}, {machine['cores']} cores, {provenance['date'][:10]}",
        k=arm.num_speculative_tokens,
        acceptance=_acceptance(arm, measured),
    )


def _depths(figures: Mapping[str, Any]) -> list[str]:
    return sorted(
        (name.removeprefix("accuracy_") for name in figures if name.startswith("accuracy_")), key=int
    )


def _acceptance(arm: ArmRecord, measured: Results) -> str:
    by_kind: dict[str, list[RequestRecord]] = defaultdict(list)
    for row in measured.requests:
        if row.arm == arm.name and row.phase == "measured" and row.error is None:
            by_kind[row.category or "other"].append(row)
            by_kind["all"].append(row)
    kinds = [*sorted(kind for kind in by_kind if kind != "all"), "all"]
    depth = arm.num_speculative_tokens or 0
    header = ["prompts", "number", "acceptance length", *(f"accepted at {n}" for n in range(1, depth + 1))]
    return _table(
        header, [[kind, str(len(by_kind[kind])), *_survival(by_kind[kind], depth)] for kind in kinds]
    )


def _survival(rows: Iterable[RequestRecord], depth: int) -> list[str]:
    counts = [0] * (depth + 1)
    for row in rows:
        for accepted, times in enumerate(row.histogram):
            counts[accepted] += times
    drafts = sum(counts)
    shares = [sum(counts[n:]) / drafts for n in range(1, depth + 1)]
    return [f"{1 + sum(shares):.2f}", *(f"{share:.2f}" for share in shares)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
