"""`scripts/learn-safety damage`: 200 damaged heads go the way of a user's; none may be offered or promoted.

Each head goes through `learn prove` and `learn promote` beside a serving endpoint with the whole head, on the
local SageMaker with the real engine. Heads whose files show the damage start no engine. Of the others, the
candidate's endpoint is deployed and deleted for each, as for a user; the plain endpoint alone is kept from
head to head. The record has one line for each head; a later call continues with the seeds that are missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peagle_bench.compare.deployments import Fleet
from peagle_learn.core.proof import Proof, Ratio
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import make_data, plan_data
from peagle_learn.evidence import CANDIDATE, PLAIN
from peagle_learn.promote import promote
from peagle_learn.prove import ProveDependencies, plan_prove, prove
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.service.progress import Event
from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.engine.trainer_env import ensure_trainer
from sagemaker_local.paths import weights_dir
from scripts.bench.job import run_job
from scripts.bench.local_stack import LocalStack
from scripts.bench.progress import Reporter
from scripts.bench.training.damaged_heads import TRAINED, Damage, make, train
from scripts.bench.training.safety_record import HEADS, append, origin, recorded, wrong_heads

NAME, BUCKET = "whole-head", "damaged-heads"
PROMPTS, GENERAL, TOKENS = 56, 20, 40


@dataclass(frozen=True)
class Trial:
    """What became of one damaged head; ``acceptance`` is the ratio to the serving head, with its interval."""

    seed: int
    kind: str
    variant: str
    head: str
    offered: bool
    promoted: bool
    decided_by: str
    prompts: int
    acceptance: Ratio | None
    reason: str
    seconds: float
    training: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def decided_by(proof: Proof) -> str:
    """Name what ended a proof: files, canary, an early look, or the whole measurement."""
    evidence = proof.evidence
    if evidence.head_faults:
        return "files"
    if evidence.canary_fault is not None:
        return "canary"
    return "early look" if evidence.hopeless is not None else "whole measurement"


class World:
    """A serving endpoint with the whole head, data of its own target, and the plain arm, kept."""

    def __init__(self, stack: LocalStack, folder: Path, reporter: Reporter) -> None:
        self._stack, self._folder, self._reporter = stack, folder, reporter
        shipped, session = weights_dir(), stack.session
        session.client("s3").create_bucket(Bucket=BUCKET)
        served = EndpointSpec(
            name=NAME,
            model="tiny-code",
            speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
            startup_timeout_s=120,  # how long a head that fails its canary is waited for
        )
        self.spec_path = folder / "peagle.yaml"
        self.spec_path.write_text(dump_spec(served))
        stack.deploy({NAME: served})
        lines = (shipped / "held-out.jsonl").read_text().splitlines()
        texts = [json.loads(line)["text"][:240] for line in lines[: PROMPTS + GENERAL]]
        for name, part in (("prompts", texts[:PROMPTS]), ("general", texts[PROMPTS:])):
            rows = [json.dumps({"prompt": text, "max_tokens": TOKENS, "temperature": 0}) for text in part]
            (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
        self.spec = LearnSpec(
            name="safety",
            target={"model": "tiny-code"},
            endpoint=NAME,
            bucket=f"s3://{BUCKET}/x",
            data={
                "prompts": [str(folder / "prompts.jsonl")],
                "general": str(folder / "general.jsonl"),
                "held_out": 0.5,
                "max_tokens": TOKENS,
            },
            prove={"max_tokens": TOKENS},
        )
        made = make_data(
            plan_data(self.spec, session, folder / "work"),
            session,
            folder / "work",
            confirm=lambda _: True,
            progress=self._tell,
        )
        self.rows = (made.folder / "training" / "train.tokens.jsonl").read_text().splitlines()
        self._plain = False

    def _tell(self, event: Event) -> None:
        if event.phase in ("failed", "interrupted"):
            self._reporter.say(f"   {event.message}")

    def try_head(self, what: Damage, head: Path) -> tuple[Proof, bool]:
        """Prove a head and try to promote it; return the proof, and whether it was promoted."""
        session, work = self._stack.session, self._folder / "work"
        plan = plan_prove(self.spec, load_spec(self.spec_path), str(head), session, work)
        if plan.candidate.report.ok and not self._plain:
            self._stack.deploy({PLAIN: plan.arms[PLAIN]})
            self._plain = True
            plan = plan_prove(self.spec, load_spec(self.spec_path), str(head), session, work)
        offer = plan.offer
        if plan.arms:  # the plain arm of the head before is no leftover
            gone = tuple(name for name in offer.leftovers if name != plan.arms[PLAIN].name)
            offer = replace(offer, leftovers=gone)
        proof = prove(
            replace(plan, offer=offer),
            session,
            work,
            confirm=lambda _: True,
            progress=self._tell,
            unguarded=True,
            dependencies=ProveDependencies(fleet=_beside_the_plain_one),
        )
        text = self.spec_path.read_text()
        try:
            promote(
                self.spec, self.spec_path, session, head=proof.bound.head, progress=self._tell, unguarded=True
            )
        except PlanRefused as refused:
            unchanged = self.spec_path.read_text() == text
            return proof, not ("is not promoted: the head was not offered" in str(refused) and unchanged)
        return proof, True


@contextmanager
def _beside_the_plain_one(arms: Mapping[str, EndpointSpec], session: Any, **more: Any) -> Iterator[None]:
    with Fleet({CANDIDATE: arms[CANDIDATE]}, session, **more):
        yield


def trial(world: World, what: Damage, folder: Path) -> Trial:
    """Make one damaged head and try it."""
    began, training = time.monotonic(), dict[str, Any]()
    shipped = weights_dir()
    if what.variant in TRAINED:
        python = ensure_trainer(lambda line: print(line, file=sys.stderr))
        head, training = train(folder, what, python, shipped / "target", shipped / "p-eagle", world.rows)
    else:
        head = make(folder, what, shipped / "p-eagle")
    proof, promoted = world.try_head(what, head)
    evidence = proof.evidence
    held_out = evidence.held_out
    return Trial(
        seed=what.seed,
        kind=what.kind,
        variant=what.variant,
        head=proof.bound.head[:16],
        offered=proof.decision.offered,
        promoted=promoted,
        decided_by=decided_by(proof),
        prompts=0 if held_out is None else held_out.prompts,
        acceptance=None if held_out is None else held_out.acceptance,
        reason=next(iter(proof.decision.reasons), ""),
        seconds=round(time.monotonic() - began, 1),
        training=training,
        provenance=origin(what.seed),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Try the heads that the results file lacks, as long as there is time for another."""
    parser = argparse.ArgumentParser(prog="scripts/learn-safety damage", description=__doc__)
    parser.add_argument("--heads", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=600, help="begin no head after these")
    parser.add_argument("--output", type=Path, default=HEADS)
    asked = parser.parse_args(words)
    began = time.monotonic()

    def job(reporter: Reporter) -> int:
        have = {each["seed"] for each in recorded(asked.output)}
        missing = [Damage.of(seed) for seed in range(asked.heads) if seed not in have]
        missing.sort(key=lambda what: not what.is_static)  # the cheap ones first
        folder = Path(tempfile.mkdtemp(prefix="damaged-heads-"))
        try:
            with LocalStack(reporter.say) as stack, reporter.phase("heads"):
                world = World(stack, folder, reporter)
                for what in missing:
                    if time.monotonic() - began > asked.minutes * 60:
                        break
                    found = trial(world, what, folder / str(what.seed))
                    shutil.rmtree(folder / str(what.seed))
                    append(asked.output, found)
                    reporter.say(
                        f"   {found.seed} {found.kind}, {found.variant}: {found.seconds} s, refused by"
                        f" {found.decided_by}: {found.reason[:200]}"
                    )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        rows = recorded(asked.output)
        wrong = wrong_heads(rows)
        reporter.say(f"{len(rows)} heads; offered or promoted: {wrong or 'none'}")
        return 1 if wrong else 0

    return run_job(job)


if __name__ == "__main__":
    sys.exit(main())
