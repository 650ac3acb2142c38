"""`learn prove`: measure a candidate and the serving head on held-out, general and long prompts.

The static checks come first, and refuse most damaged heads before any engine is started. Then the candidate
and an arm without speculation run beside the serving head, are measured in turns, and deleted; what serves is
not changed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described, describe_endpoint
from peagle_bench.compare.analysis import Measured
from peagle_bench.compare.arms import called, spec_of
from peagle_bench.compare.deployments import Fleet
from peagle_bench.compare.measurement import Setup, estimate, minutes_of
from peagle_bench.compare.run import CompareDependencies, compare
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load.work import WorkItem
from peagle_bench.packs.long_context import make as make_long
from peagle_bench.packs.pack import Make, PackNotMeasured
from peagle_bench.packs.run import model_of
from peagle_bench.results.records import ArmRecord, Load
from peagle_bench.results.result_file import Outcome, Results
from peagle_bench.verify.engines import EndpointEngine, EnginePair
from peagle_bench.verify.run import QUICK, verify
from peagle_bench.workloads import Workload, conversations_in, load_workload
from peagle_learn.arms import arm_spec, leftovers_of, mark_of, remove_leftovers
from peagle_learn.core.proof import (
    UNKNOWN_TRAINING,
    Bound,
    Proof,
    ProofEvidence,
    SetEvidence,
    Thresholds,
    decide,
    parse_proof,
)
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import need_endpoint, need_general
from peagle_learn.evidence import (
    CANDIDATE,
    PLAIN,
    SERVING,
    checks_of,
    ends_early,
    hopeless_ratio,
    set_evidence,
)
from peagle_learn.heads import Candidate, canary_fault, open_candidate, stage_candidate, trained_apart
from peagle_learn.stored_data import GENERAL, HELD_OUT, set_uri, stored_manifest
from peagle_sm import __version__
from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.core.errors import Declined, EndpointFailed, NotFound, PeagleError, PlanRefused, SpecError
from peagle_sm.core.heads.layout import HeadReport
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.endpoint_config import VARIANT
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import status
from peagle_sm.service.heads.checking import Sources
from peagle_sm.service.progress import Event, Progress
from peagle_sm.service.spec_to_plan import plan_for

CHECKS = ("greedy", "streaming", "long-context")  #: of verify
_LONG_UNITS = 4
_VERIFIED = 32  #: prompts whose answers are compared with the target's own
_ALONE = Load("closed", concurrency=1)


@dataclass(frozen=True)
class ProveOffer:
    """What a proof would deploy and cost; ``usd`` is the estimate, ``most_usd`` until the lifetime's end."""

    head: str
    head_uri: str
    endpoint: str
    deploys: tuple[str, ...]
    held_out: int
    general: int
    minutes: float
    usd_per_hour: float | None
    usd: float | None
    most_usd: float | None
    warnings: tuple[str, ...]
    leftovers: tuple[str, ...] = ()  #: arms of a killed proof, which are deleted first
    conversations: Mapping[str, int] = field(default_factory=dict)  #: of each set

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class ProvePlan:
    """Everything that is known before anything is created."""

    spec: LearnSpec
    candidate: Candidate
    bound: Bound
    arms: dict[str, EndpointSpec]
    held_out: Workload | None
    general: Workload | None
    offer: ProveOffer
    trained_apart: bool | None = None


def thresholds_of(spec: LearnSpec) -> Thresholds:
    """Return what learn.yaml asks of a proof."""
    prove_spec = spec.prove
    return Thresholds(prove_spec.confidence, prove_spec.least_gain, prove_spec.most_general_loss)


def bound_of(spec: LearnSpec, session: Session, head: str, head_uri: str, manifest: dict[str, Any]) -> Bound:
    """Return what a proof of this head holds for now.

    Raises:
        NotFound, ServiceFault: the endpoint does not exist, or is not in service.
    """
    described = describe_endpoint(session, need_endpoint(spec))
    endpoint_status = status(described.arm.endpoint, session=session)
    return Bound(
        head=head,
        head_uri=head_uri,
        data=str(manifest["data"]),
        target=spec.target.model,
        target_revision=spec.target.revision,
        endpoint=described.arm.endpoint,
        endpoint_config=endpoint_status.config_name,
        num_speculative_tokens=described.arm.num_speculative_tokens,
    )


def serving_spec(spec: LearnSpec, served: EndpointSpec, session: Session) -> EndpointSpec:
    """Check that an endpoint's spec is the one that serves, by the hash in its tags.

    Raises:
        SpecError: it is another endpoint's, another model's, or was changed since the last deploy.
    """
    endpoint = need_endpoint(spec)
    if served.name != endpoint:
        raise SpecError(
            f"the endpoint's spec has name {served.name!r}; learn.yaml has endpoint: {endpoint}",
            next_step="Give the spec of that endpoint with --spec.",
        )
    if served.model_name != spec.target.model and not spec.target.model.startswith("s3://"):
        raise SpecError(
            f"the endpoint serves model {served.model_name}; learn.yaml has target.model: "
            f"{spec.target.model}",
            next_step="Correct target or endpoint in learn.yaml.",
        )
    summary = status(endpoint, session=session).summary
    planned = plan_for(served, session, stack=summary.stack is not None).spec_hash
    tagged = summary.spec_hash
    if tagged != planned:
        raise SpecError(
            f"the spec of {endpoint} is not what serves: its hash is {planned}, the endpoint's tag has"
            f" {tagged}",
            next_step=f"Run `peagle-sm update` with it first, or give the spec that serves with --spec"
            f" (`peagle-sm status {endpoint}{session.command_flags()}`).",
            details={"found": planned, "allowed": tagged},
        )
    return served


def plan_prove(
    spec: LearnSpec,
    served: EndpointSpec,
    head: str,
    session: Session,
    work: Path,
    *,
    sources: Sources | None = None,
) -> ProvePlan:
    """Fetch and check the head, and plan its arms; create nothing.

    Raises:
        SpecError, NotFound: the spec, the head, the data or the endpoint does not fit or exist.
        PlanRefused: the head learned another set, an arm's plan has an error, a name is taken, or the proof
            costs more than its budget.
    """
    opened = sources or Sources(lambda: session)
    served = serving_spec(spec, served, session)
    manifest = stored_manifest(spec, session)
    endpoint = describe_endpoint(session, need_endpoint(spec))
    k = endpoint.arm.num_speculative_tokens
    candidate = open_candidate(
        head, session, work, target=spec.target.place, num_speculative_tokens=k, sources=opened
    )
    uri = f"{spec.folder}heads/{candidate.sha256[:16]}/"
    bound = bound_of(spec, session, candidate.sha256, uri, manifest)
    if not candidate.report.ok:
        offer = ProveOffer(
            candidate.sha256, uri, endpoint.arm.endpoint, (), 0, 0, 0, 0, 0, 0, _warnings(candidate.report)
        )
        return ProvePlan(spec, candidate, bound, {}, None, None, offer)
    apart = trained_apart(candidate, manifest, spec)
    held_out = _workload(spec, session, work, manifest, HELD_OUT)
    need_general(GENERAL in manifest["files"])
    general = _workload(spec, session, work, manifest, GENERAL)
    few = {"held-out": held_out, "general": general}
    refuse_few_conversations({name: conversations_in(workload.items) for name, workload in few.items()})
    name = f"{spec.name}-{candidate.sha256[:8]}"
    setup = Setup((*held_out.items, *general.items), (_ALONE,))
    hours = max(1.0, 4 * minutes_of(setup, 3) / 60)
    specs = {
        CANDIDATE: spec_of(served, "p-eagle", k=k, head=name, head_uri=uri),
        PLAIN: spec_of(served, "none"),
    }
    mark = mark_of(spec.name, work)
    arms = {arm: arm_spec(each, spec.name, arm, hours, mark) for arm, each in specs.items()}
    leftovers = leftovers_of(session, arms.values())
    plans = {arm: plan_for(each, session) for arm, each in arms.items()}
    for plan in plans.values():
        plan.refuse_errors()
    offer = _offer(candidate, uri, endpoint, plans, held_out, general, leftovers)
    offer = replace(offer, warnings=(*offer.warnings, *([] if apart else [UNKNOWN_TRAINING])))
    refuse_the_price(offer.most_usd, spec.prove.budget_usd)
    return ProvePlan(spec, candidate, bound, arms, held_out, general, offer, apart)


def refuse_few_conversations(counts: Mapping[str, int]) -> None:
    """Refuse a proof that no measurement can decide, since its verdict is over conversations.

    Raises:
        PlanRefused: one of the sets has too few; nothing was created.
    """
    few = {name: count for name, count in counts.items() if count < FEWEST_CONVERSATIONS}
    if few:
        sets = ", ".join(f"the {name} prompts are of {count}" for name, count in few.items())
        raise PlanRefused(
            f"a proof needs at least {FEWEST_CONVERSATIONS} conversations in each set; {sets}. Nothing was"
            " created.",
            next_step="Add prompts of other conversations to data.prompts and data.general, or raise"
            " data.held_out or lower data.general_trained, and run `peagle-sm learn data` again.",
            details={"findings": [], "found": few, "allowed": FEWEST_CONVERSATIONS},
        )


def refuse_the_price(most_usd: float | None, budget: float | None) -> None:
    """Refuse a proof that could cost more than its budget, or whose price is unknown.

    Raises:
        PlanRefused: it could; nothing was created.
    """
    if budget is not None and (most_usd is None or most_usd > budget):
        cost = "unknown" if most_usd is None else f"{most_usd:,.2f} USD"
        raise PlanRefused(
            f"prove.budget_usd: the proof could cost {cost}; allowed: {budget:,.2f} USD. Nothing was"
            " created.",
            next_step="Raise the budget, or lower lifecycle.max_lifetime_hours in the endpoint's spec.",
            details={"findings": []},
        )


def _warnings(report: HeadReport) -> tuple[str, ...]:
    return tuple(f"{fault.severity}: {fault.message}" for fault in report.faults if fault.severity != "info")


def _workload(spec: LearnSpec, session: Session, work: Path, manifest: dict[str, Any], name: str) -> Workload:
    """Read a set of prompts as it was stored, and check it against the manifest."""
    uri = set_uri(spec, manifest["data"])
    bucket, prefix = s3.split_uri(uri)
    entry = manifest["files"][name]
    content = s3.read_range(session, bucket, prefix + name, 0, entry["size"])
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise SpecError(
            f"{uri}{name} is not the file of its manifest",
            next_step="Make the data again: `peagle-sm learn data`.",
        )
    path = work / "prove" / name.rpartition("/")[2]
    write_file(path, content, parents=True)
    prove_spec = spec.prove
    workload = load_workload(str(path), seed=prove_spec.seed, max_tokens=prove_spec.max_tokens)
    if prove_spec.prompts is None or len(workload.items) <= prove_spec.prompts:
        return workload
    return replace(workload, items=_one_by_one(workload.items)[: prove_spec.prompts])


def _one_by_one(items: Sequence[WorkItem]) -> tuple[WorkItem, ...]:
    """Order prompts so that the first ones cover as many conversations as possible."""
    seen: Counter[str] = Counter()
    places = []
    for item in items:
        unit = item.conversation or item.prompt_id
        places.append(seen[unit])
        seen[unit] += 1
    return tuple(item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: pair[0]))


def _offer(
    candidate: Candidate,
    uri: str,
    endpoint: Described,
    plans: Mapping[str, Plan],
    held_out: Workload,
    general: Workload,
    leftovers: tuple[str, ...],
) -> ProveOffer:
    every = Setup((*held_out.items, *general.items), (_ALONE,))
    cost = estimate(list(plans.values()), every, arms=len(plans) + 1, deployments=1)
    return ProveOffer(
        head=candidate.sha256,
        head_uri=uri,
        endpoint=endpoint.arm.endpoint,
        deploys=tuple(plan.names.endpoint for plan in plans.values()),
        held_out=len(held_out.items),
        general=len(general.items),
        minutes=cost.minutes,
        usd_per_hour=cost.usd_per_hour,
        usd=None if cost.usd_per_hour is None else cost.usd_per_hour * cost.minutes / 60,
        most_usd=cost.most_usd,
        warnings=_warnings(candidate.report),
        leftovers=leftovers,
        conversations={
            "held out": conversations_in(held_out.items),
            "general": conversations_in(general.items),
        },
    )


@dataclass(frozen=True)
class ProveDependencies:
    """What a proof calls; tests replace them. ``fleet`` deploys the arms and deletes them at its exit."""

    fleet: Callable[..., Any] = Fleet
    measure: Callable[..., Outcome] = compare


def prove(
    plan: ProvePlan,
    session: Session,
    work: Path,
    *,
    confirm: Callable[[ProveOffer], bool],
    progress: Progress,
    unguarded: bool = False,
    sources: Sources | None = None,
    dependencies: ProveDependencies | None = None,
) -> Proof:
    """Confirm, measure, decide, and store the proof; everything deployed is deleted before this returns.

    Raises:
        Declined: ``confirm`` declined; nothing was created.
        BillableLeft: the deletion of an endpoint could not be confirmed; it names the command.
        PeagleError: a deployment or a measurement failed; nothing billable remains.
    """
    given = dependencies or ProveDependencies()
    files: dict[str, Path] = {}
    if plan.candidate.report.ok:
        if not confirm(plan.offer):
            raise Declined(
                "Nothing was created: the proof was not confirmed.", next_step="Run it again and confirm."
            )
        opened = sources or Sources(lambda: session)
        progress(Event("check", f"copying the head to {plan.bound.head_uri}"))
        stage_candidate(
            plan.candidate, plan.bound.head_uri, session, opened, cache=work / "cache", version=__version__
        )
        if plan.offer.leftovers:
            remove_leftovers(session, plan.arms.values(), plan.offer.leftovers, progress)
        began = session.now()
        try:
            evidence = _measured(plan, session, work, progress, unguarded, given, files)
        except EndpointFailed:
            fault = canary_fault(session, plan.arms[CANDIDATE].name, began)
            if fault is None:  # for example no capacity, which is not the head's fault
                raise
            progress(Event("check", f"the candidate's canary found: {fault}"))
            evidence = ProofEvidence(canary_fault=fault)
        hours = (session.now() - began).total_seconds() / 3600
        hourly = plan.offer.usd_per_hour
        usd = None if hourly is None else round(hours * hourly, 4)
    else:
        errors = [fault.message for fault in plan.candidate.report.faults if fault.severity == "error"]
        evidence, usd = ProofEvidence(head_faults=tuple(errors)), 0.0
    wanted, evidence = thresholds_of(plan.spec), replace(evidence, trained_apart=plan.trained_apart)
    proof = Proof(
        bound=plan.bound,
        thresholds=wanted,
        evidence=evidence,
        decision=decide(evidence, wanted),
        made_at=session.now().isoformat(timespec="seconds"),
        tool_version=__version__,
        usd=usd,
        results={name: _sha256(path) for name, path in files.items() if path.is_file()},
    )
    store_proof(plan.spec, session, work, proof)
    return proof


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _measured(
    plan: ProvePlan,
    session: Session,
    work: Path,
    progress: Progress,
    unguarded: bool,
    given: ProveDependencies,
    files: dict[str, Path],
) -> ProofEvidence:
    assert plan.held_out is not None  # of a head that passed its check
    assert plan.general is not None
    prove_spec = plan.spec.prove
    wanted = thresholds_of(plan.spec)
    folder = work / "prove" / plan.candidate.sha256[:16]
    folder.mkdir(parents=True, exist_ok=True)
    services = CompareDependencies.of(session, progress, seed=prove_spec.seed)
    with given.fleet(plan.arms, session, unguarded=unguarded, progress=progress):
        serving = called(describe_endpoint(session, plan.bound.endpoint), SERVING, 1)
        new = {name: called(describe_endpoint(session, arm.name), name, 1) for name, arm in plan.arms.items()}
        arms = [new[PLAIN], serving, new[CANDIDATE]]
        every: list[Results] = []

        def measured(name: str, workload: Workload, ended: Callable[[Measured], bool]) -> Results:
            progress(Event("check", f"{name} prompts: {len(workload.items):,}, three arms in turns"))
            path = files[name] = folder / f"{name}.jsonl"
            path.unlink(missing_ok=True)  # of a proof that was killed
            # Acceptance depends on sampling, so each request keeps its own parameters.
            setup = Setup(workload.items, (_ALONE,), temperature=workload.temperature, ended=ended)
            outcome = given.measure([nullcontext(arms)], setup, workload, path, services, control=False)
            every.append(outcome.results)
            return outcome.results

        def whole(name: str, workload: Workload) -> SetEvidence:
            return set_evidence(measured(name, workload, lambda _: False), prove_spec.confidence)

        records = [each.arm for each in arms]
        began = session.now()
        first = measured("held-out", plan.held_out, lambda so_far: ends_early(so_far, records, wanted))
        held_out, hopeless = set_evidence(first, prove_spec.confidence), hopeless_ratio(first, wanted)
        if hopeless is not None:
            progress(Event("check", "the candidate cannot be offered any more: ending the measurement"))
            return ProofEvidence(held_out=held_out, hopeless=hopeless)
        general = whole("general", plan.general)
        plain, candidate = (
            EndpointEngine(session, new[name].arm.endpoint, new[name].arm.component)
            for name in (PLAIN, CANDIDATE)
        )
        long_work = _long_prompts(arms[0], plain, prove_spec.seed)
        long_context = None if long_work is None else whole("long", long_work)
        ended = session.now()
        progress(Event("check", "comparing the candidate's answers with the target's own"))
        most_tokens = min(QUICK.max_tokens, prove_spec.max_tokens)
        options = replace(QUICK, max_tokens=most_tokens, seed=prove_spec.seed)
        items = greedy(plan.held_out.items[:_VERIFIED])
        pair = EnginePair(plain, candidate, options)
        checks = checks_of(verify(pair, items, CHECKS, lambda line: progress(Event("check", line))))
    return ProofEvidence(
        held_out=held_out,
        general=general,
        long_context=long_context,
        identity=checks,
        # Read last: a minute of the metric arrives a minute or two later.
        other_requests=other_requests(session, serving.arm, every, began, ended),
    )


def greedy(items: Sequence[WorkItem]) -> list[WorkItem]:
    """Return requests at temperature 0: only greedy answers can be identical."""
    return [replace(item, body={**item.body, "temperature": 0.0}) for item in items]


def other_requests(
    session: Session, arm: ArmRecord, every: Sequence[Results], began: datetime, ended: datetime
) -> float | None:
    """Return other callers' requests to the serving head for each request of the proof; None if not known."""
    own_requests = sum(request.arm == SERVING for results in every for request in results.requests)
    dimensions = {"EndpointName": arm.endpoint, "VariantName": VARIANT}
    if arm.component is not None:
        dimensions = {"InferenceComponentName": arm.component}
    try:
        received = cloudwatch.invocations(session, dimensions, began, ended)
    except PeagleError:
        return None
    return (received - own_requests) / own_requests if 0 < own_requests <= received else None


def _long_prompts(plain: Described, engine: Any, seed: int) -> Workload | None:
    try:
        work = make_long(Make(model_of(plain, engine, None), seed, _LONG_UNITS))
    except PackNotMeasured:
        return None
    source, license = "generated by peagle-sm from a seed", "Apache-2.0 (generated)"
    return Workload("long context", work.items, license, None, source, len(work.items), temperature=0.0)


def proof_uri(spec: LearnSpec, head: str) -> str:
    """Return where a head's proof is stored."""
    return f"{spec.folder}proofs/{head[:16]}.json"


def store_proof(spec: LearnSpec, session: Session, work: Path, proof: Proof) -> None:
    """Write a proof here and to the spec's bucket."""
    text = proof.to_json()
    write_file(work / "proofs" / f"{proof.bound.head[:16]}.json", text, parents=True)
    bucket, key = s3.split_uri(proof_uri(spec, proof.bound.head))
    put_bytes(session, bucket, key, text.encode())


def stored_proof(spec: LearnSpec, session: Session, head: str) -> Proof:
    """Read a head's proof from the spec's bucket.

    Raises:
        NotFound: the head has none.
        SpecError: it is damaged, or was changed.
    """
    uri = proof_uri(spec, head)
    bucket, key = s3.split_uri(uri)
    folder, _, name = key.rpartition("/")
    size = s3.list_sizes(session, bucket, folder + "/").get(name)
    if size is None:
        raise NotFound(
            f"the head {head[:16]} has no proof ({uri})", next_step="Prove it: `peagle-sm learn prove`."
        )
    return parse_proof(s3.read_range(session, bucket, key, 0, size), uri)
