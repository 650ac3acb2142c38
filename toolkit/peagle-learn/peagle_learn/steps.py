"""The four steps of `learn run`, each by its own use case; each finds its result again after a kill."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.compare.measurement import LOCAL_START_UP_MINUTES, SECONDS_A_TOKEN, START_UP_MINUTES
from peagle_bench.results.records import ArmRecord
from peagle_learn.core.proof import Proof, faults_of
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.steps import StepCost
from peagle_learn.data import DataOffer, DataPlan, make_data, need_general, plan_data
from peagle_learn.promote import promote, settle
from peagle_learn.prompts import places_of
from peagle_learn.prove import (
    bound_of,
    plan_prove,
    prove,
    refuse_few_conversations,
    stored_proof,
    thresholds_of,
)
from peagle_learn.run import RunStep, StepResult
from peagle_learn.stored_data import HELD_OUT, channel_content, has_object, origin_of, stored_manifest
from peagle_learn.train import RUNNING_JOB, plan_training, train
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, NotOffered, SpecError
from peagle_sm.service.progress import Progress
from peagle_sm.service.spec_to_plan import load_spec
from peagle_sm.traffic.reading import files_of

Results = Mapping[str, Mapping[str, Any]]
_SETS, _ARMS = 2, 3  #: sets of prompts, and arms that answer each
_NO_PRICE = (
    "the endpoint's price is not known; AWS's price list answers where `pricing:GetProducts` is allowed"
)


@dataclass(frozen=True)
class RunSteps:
    """What all steps share: the two specs, the session, and the folder of the run."""

    spec: LearnSpec
    endpoint_path: Path
    base: Path
    session: Session
    work: Path
    progress: Progress
    unguarded: bool = False

    def steps(self) -> tuple[RunStep, ...]:
        """Return the steps in order."""
        return (
            RunStep("data", self._data_inputs, self._data_cost, self._data, self._data_exists),
            RunStep("train", self._train_inputs, self._train_cost, self._train, self._head_exists, "prove"),
            RunStep("prove", self._prove_inputs, self._prove_cost, self._prove),
            RunStep("promote", self._promote_inputs, self._promote_cost, self._promote),
        )

    def usd_per_hour(self) -> float | None:
        """Return the price of the endpoint, from which a head pays itself back.

        A killed run may have left it in the middle of an update: then this waits for its end.
        """
        return self._serving_arm().usd_per_hour

    def _serving_arm(self) -> ArmRecord:
        settle(self.spec, self.session, self.progress)
        return describe_endpoint(self.session, str(self.spec.endpoint)).arm

    def _data_plan(self) -> DataPlan:
        return plan_data(self.spec, self.session, self.work, base=self.base)

    @cached_property
    def _data_offer(self) -> DataOffer:
        """What the data step would send; read once, before anything is done."""
        return self._data_plan().offer

    @cached_property
    def _origin(self) -> list[Any]:
        """What the answers come from beside the prompts; read once, at the start of a run."""
        arm = self._serving_arm()
        return origin_of(self.session, arm.endpoint, arm.component)

    @cached_property
    def _prompts(self) -> list[str]:
        data = self.spec.data
        sources = (*data.prompts, *(() if data.general is None else (data.general,)))
        return [content_of(each, self.base, self.session) for each in sources]

    def _data_inputs(self, results: Results) -> Any:
        spec = self.spec
        return [
            spec.data.model_dump(mode="json"),
            spec.target.model_dump(mode="json"),
            spec.endpoint,
            spec.folder,
            self._origin,
            self._prompts,
        ]

    def _data_cost(self, results: Results) -> StepCost:
        offer = self._data_offer
        what = f"{offer.to_ask:,} answers from {offer.endpoint}"
        if offer.ends_early:
            what += f"; not all: its {offer.ending}"
        usd, budget = offer.usd, offer.budget_usd
        if usd is None:  # a budget holds by the price
            return StepCost("data", what, None, None, unknown=_NO_PRICE, notes=offer.notes)
        if budget is None:
            why = "data.budget_usd limits what it costs"
            return StepCost("data", what, usd, None, unknown=why, notes=offer.notes)
        return StepCost("data", what, min(usd, budget), budget, notes=offer.notes)

    def _data(self, results: Results) -> StepResult:
        stored = make_data(
            self._data_plan(), self.session, self.work, confirm=_yes, progress=self.progress, base=self.base
        )
        hourly = self.usd_per_hour()
        usd = None if hourly is None else round(hourly * stored.end.spent_s / 3600, 4)
        return StepResult({"data": stored.data, "uri": stored.uri, "rows": dict(stored.rows)}, usd)

    def _data_exists(self, result: Mapping[str, Any]) -> bool:
        """Return whether it is the newest set, which is the one that all later steps read."""
        try:
            manifest = stored_manifest(self.spec, self.session)
        except (NotFound, SpecError):
            return False
        is_newest = manifest["data"] == result["data"]
        return is_newest and has_object(self.session, f"{result['uri']}{HELD_OUT}")

    def _train_inputs(self, results: Results) -> Any:
        spec = self.spec
        own = [each for each in (spec.train.training, spec.train.validation) if each is not None]
        parts = [spec.train.model_dump(mode="json"), spec.head, spec.target.model_dump(mode="json")]
        contents = [channel_content(each, self.base, self.session) for each in own]
        return [results.get("data", {}).get("data"), *parts, contents]

    def _train_cost(self, results: Results) -> StepCost:
        # The steps of the training follow from the rows; all else is known before an answer is paid for.
        data_is_to_come = "data" not in results
        plan = plan_training(self.spec, self.session, self.base, data_is_to_come=data_is_to_come)
        plan.refuse_errors()  # an unknown price is one
        limit = f"one training job, at most {self.spec.train.max_hours:g} h"
        what = limit if data_is_to_come else f"job {plan.job}"
        others = tuple(each for each in plan.findings if each.check == RUNNING_JOB)
        most_usd, hours = plan.facts.price.max_usd, plan.estimated_hours
        if most_usd is None or hours is None:  # the limit is all that is known of the hours
            return StepCost("train", what, most_usd, most_usd, findings=others)
        usd = min(most_usd, most_usd * hours / self.spec.train.max_hours)
        return StepCost("train", what, usd, most_usd, findings=others)

    def _train(self, results: Results) -> StepResult:
        state = train(
            self.spec,
            self.session,
            confirm=_yes,
            progress=self.progress,
            unguarded=self.unguarded,
            base=self.base,
        )
        if state.job.artifact is None:
            look = f"peagle-sm learn status {state.job.name}{self.session.command_flags()}"
            raise NotFound(
                f"job {state.job.name} has no head",
                next_step=f"Look at it: `{look}`.",
            )
        return StepResult({"job": state.job.name, "head": state.job.artifact}, state.usd)

    def _head_exists(self, result: Mapping[str, Any]) -> bool:
        return has_object(self.session, str(result["head"]))

    def _prove_inputs(self, results: Results) -> Any:
        parts = results.get("train", {}).get("head"), results.get("data", {}).get("data")
        return [*parts, self.spec.prove.model_dump(mode="json"), self.spec.endpoint]

    def _prove_cost(self, results: Results) -> StepCost:
        """Estimate two endpoints of one instance each; arms that fit as components cost less."""
        need_general(self.spec.data.general is not None)
        refuse_few_conversations(self._conversations(results))
        prove_spec = self.spec.prove
        tokens = (prove_spec.prompts or 100) * _SETS * _ARMS * prove_spec.max_tokens
        start = LOCAL_START_UP_MINUTES if self.session.is_local else START_UP_MINUTES
        hours = tokens * SECONDS_A_TOKEN / 3600 + start / 60
        arm = self._serving_arm()
        usd = None if arm.usd_per_hour is None else 2 * arm.usd_per_hour / max(1, arm.instance_count) * hours
        why = "prove.budget_usd limits what it costs" if prove_spec.budget_usd is None else ""
        why = _NO_PRICE if usd is None else why
        return StepCost("prove", "two arms beside the serving head", usd, prove_spec.budget_usd, unknown=why)

    def _conversations(self, results: Results) -> dict[str, int]:
        """Count the conversations of each measured set: of the stored data, or of what would be made."""
        if "data" in results:
            sets = stored_manifest(self.spec, self.session)["sets"]
        else:
            sets = [asdict(facts) for facts in self._data_offer.sets]
        counts = {facts["name"]: int(facts["conversations"]) for facts in sets}
        return {"held-out": counts["held out"], "general": counts.get("general", 0)}

    def _prove(self, results: Results) -> StepResult:
        head = str(results["train"]["head"])
        served = load_spec(self.endpoint_path)
        plan = plan_prove(self.spec, served, head, self.session, self.work)
        proof = self._known_proof(plan.bound.head) or prove(
            plan, self.session, self.work, confirm=_yes, progress=self.progress, unguarded=self.unguarded
        )
        if not proof.decision.offered:
            raise NotOffered(
                f"head {proof.bound.head[:16]} is not offered: {proof.decision.reasons[0]}",
                next_step="Train longer, with more data or other settings, and run this again.",
                details={"reasons": list(proof.decision.reasons)},
            )
        return StepResult({"head": proof.bound.head, "made_at": proof.made_at}, proof.usd)

    def _known_proof(self, head: str) -> Proof | None:
        """Return the head's proof if it still holds: a killed run may have finished it."""
        try:
            proof = stored_proof(self.spec, self.session, head)
        except NotFound:
            return None
        manifest = {"data": proof.bound.data}
        bound = bound_of(self.spec, self.session, head, proof.bound.head_uri, manifest)
        if proof.thresholds != thresholds_of(self.spec):
            return None
        holds = not proof.decision.offered or not faults_of(proof, bound, proof.thresholds)
        return proof if holds else None

    def _promote_inputs(self, results: Results) -> Any:
        return [results.get("prove"), self.spec.promote.model_dump(mode="json")]

    def _promote_cost(self, results: Results) -> StepCost:
        hourly = self.usd_per_hour()
        most = None if hourly is None else hourly * 4  # the longest update that SageMaker is asked for
        usd = None if hourly is None else hourly * (START_UP_MINUTES + 5) / 60
        why = _NO_PRICE if hourly is None else ""
        return StepCost("promote", "a second fleet while the endpoint is updated", usd, most, unknown=why)

    def _promote(self, results: Results) -> StepResult:
        promotion = promote(
            self.spec,
            self.endpoint_path,
            self.session,
            head=str(results["prove"]["head"]),
            progress=self.progress,
            unguarded=self.unguarded,
        )
        return StepResult({"promotion": promotion.number, "head": promotion.head})


def _yes(_: object) -> bool:
    """Agree: the run was confirmed as a whole."""
    return True


def content_of(source: str, base: Path, session: Session) -> str:
    """Hash what `learn data` would read of a source of learn.yaml: of ``s3://`` the listing.

    Paths count as they are below ``base``, so a copy of the folder has the same hash.

    Raises:
        PeagleError: there is nothing, or it cannot be read; the step itself would be refused, too.
    """
    digest = hashlib.sha256()
    for place in places_of(source, base):
        name = place if place.startswith("s3://") else os.path.relpath(place, base)
        for file in files_of(place, lambda: session):
            version = file.version or hashlib.sha256(file.load()).hexdigest()
            digest.update(json.dumps([name, file.name, version]).encode())
    return digest.hexdigest()
