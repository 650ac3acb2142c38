"""`learn promote` and `learn rollback`: a proved head takes over the endpoint, or the head before comes back.

A promotion needs a proof of exactly these bytes, this data, this target and the config that serves now. It
is an update in place: a second fleet, a canary where there are several instances, and alarms on server
errors and on acceptance that roll it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from peagle_learn.core.proof import Proof, faults_of, parse_proof
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import need_endpoint
from peagle_learn.heads import staged_hash
from peagle_learn.prove import bound_of, serving_spec, thresholds_of
from peagle_learn.stored_data import stored_manifest
from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import NotFound, PlanRefused, SpecError
from peagle_sm.core.heads.reading import MANIFEST, parse_manifest
from peagle_sm.core.plan.environment import acceptance_namespace
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.alarm import ACCEPTANCE_METRIC
from peagle_sm.core.resources.endpoint import Canary
from peagle_sm.core.spec.editing import edit_spec
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.service import Endpoint, status, update, wait
from peagle_sm.service.inventory.endpoint_status import EndpointStatus
from peagle_sm.service.lifecycle.existing import UpdateOffer
from peagle_sm.service.progress import Event, Pacing, Progress
from peagle_sm.service.spec_to_plan import load_spec, plan_for

SCHEMA = "peagle-sm/learn-promotion/1"
LIVE = timedelta(hours=1)  #: of live traffic before a promotion, with which the canary is compared
FEWEST_MINUTES = 5  #: of it with data; fewer are too few
FULL_MINUTES = 45  #: of it with data; with fewer, three in a row are too rare for the alarm
FIELDS = ("speculation.mode", "speculation.draft_head", "head_uri")
State = Literal["begun", "serves", "rolled-back"]


@dataclass(frozen=True)
class Promotion:
    """One promotion: the endpoint's spec before and after, by dotted field, and how far it is."""

    number: int
    endpoint: str
    head: str
    proof_made_at: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    state: State
    at: str
    schema: str = SCHEMA

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def fields_of(spec: EndpointSpec) -> dict[str, Any]:
    """Return the fields of a spec that name its head."""
    return {
        "speculation.mode": spec.speculation.mode,
        "speculation.draft_head": spec.speculation.draft_head,
        "head_uri": spec.head_uri,
    }


def with_fields(text: str, fields: Mapping[str, Any], origin: str) -> tuple[str, EndpointSpec]:
    """Return a spec's text with other fields of its head, and the spec itself."""
    present = fields_of(parse_spec(text, origin))
    written = edit_spec(text, {name: each for name, each in fields.items() if present[name] != each}, origin)
    return written, parse_spec(written, origin)


def proofs(spec: LearnSpec, session: Session) -> list[Proof]:
    """Return the proofs of the spec's bucket, newest first.

    Raises:
        SpecError: one is damaged or was changed.
    """
    bucket, prefix = s3.split_uri(f"{spec.folder}proofs/")
    stored = [
        parse_proof(s3.read_range(session, bucket, prefix + name, 0, size), f"s3://{bucket}/{prefix}{name}")
        for name, size in s3.list_sizes(session, bucket, prefix).items()
    ]
    return sorted(stored, key=lambda each: each.made_at, reverse=True)


def chosen_proof(spec: LearnSpec, session: Session, head: str | None) -> Proof:
    """Return the newest proof, or that of a head by the beginning of its hash.

    Raises:
        NotFound: there is no proof.
    """
    every = proofs(spec, session)
    fitting = [each for each in every if head is None or each.bound.head.startswith(head)]
    if not fitting:
        named = "" if head is None else f" of head {head}"
        raise NotFound(
            f"no proof{named} exists below {spec.folder}proofs/",
            next_step="Prove it: `peagle-sm learn prove`.",
        )
    return fitting[0]


def promotions(spec: LearnSpec, session: Session) -> list[Promotion]:
    """Return every promotion of the spec, oldest first.

    Raises:
        SpecError: a record is damaged.
    """
    bucket, prefix = s3.split_uri(f"{spec.folder}promotions/")
    records = []
    for name, size in s3.list_sizes(session, bucket, prefix).items():
        try:
            document = json.loads(s3.read_range(session, bucket, prefix + name, 0, size))
            records.append(TypeAdapter(Promotion).validate_python(document))
        except ValueError as error:
            raise SpecError(
                f"s3://{bucket}/{prefix}{name} is not the record of a promotion: {error}",
                next_step="Restore it from the bucket's versions.",
            ) from error
    return sorted(records, key=lambda each: each.number)


def _record(spec: LearnSpec, session: Session, promotion: Promotion) -> Promotion:
    bucket, prefix = s3.split_uri(f"{spec.folder}promotions/")
    put_bytes(session, bucket, f"{prefix}{promotion.number:05}.json", promotion.to_json().encode())
    return promotion


def promote(
    spec: LearnSpec,
    spec_path: Path,
    session: Session,
    *,
    head: str | None = None,
    confirm: Callable[[UpdateOffer], bool] | None = None,
    progress: Progress,
    pacing: Pacing | None = None,
    unguarded: bool = False,
) -> Promotion:
    """Let a proved head take over the endpoint; a repeated run finishes what a killed one began.

    Args:
        spec: learn.yaml.
        spec_path: the endpoint's spec; its fields of the head are changed when the new head serves.
        session: the account and region.
        head: beginning of the head's hash; None: that of the newest proof.
        confirm: shown the update's price; None: no question.
        progress: gets each step.
        pacing: clocks and polls.
        unguarded: promote although no guard is installed.

    Raises:
        PlanRefused: the proof does not hold, or the endpoint is a stack's; the message says why. Nothing was
            changed.
        EndpointFailed: SageMaker rolled back; the head before serves.
        PeagleError: as `peagle_sm.update`.
    """
    settle(spec, session, progress, pacing)
    endpoint, text = need_endpoint(spec), spec_path.read_text(encoding="utf-8")
    proof = chosen_proof(spec, session, head)
    after = {
        "speculation.mode": "p-eagle",
        "speculation.draft_head": f"{spec.name}-{proof.bound.head[:8]}",
        "head_uri": proof.bound.head_uri,
    }
    wanted = with_fields(text, after, str(spec_path))[1].locked_as(load_spec(spec_path))
    known = promotions(spec, session)
    last = known[-1] if known else None
    ours = last is not None and last.state != "rolled-back" and last.after == after
    now = status(endpoint, session=session)
    summary = now.summary
    planned = plan_for(wanted, session, stack=summary.stack is not None)
    serves = _serves(now, planned)
    if last is None or not ours or not serves:
        # Once the update has begun, the config is another: the binding to the old one is done with.
        _refuse_unproved(spec, proof, session, begun=ours and last is not None and last.state == "begun")
    if last is None or not ours:
        before = fields_of(serving_spec(spec, load_spec(spec_path), session))
        number = 1 if last is None else last.number + 1
        at = session.now().isoformat(timespec="seconds")
        last = Promotion(number, endpoint, proof.bound.head, proof.made_at, before, after, "begun", at)
    begun = last

    def agreed(offer: UpdateOffer) -> bool:
        if confirm is not None and not confirm(offer):
            return False
        _record(spec, session, begun)  # before the endpoint changes: a killed run is continued from it
        return True

    if not serves and summary.stack is not None:
        _record(spec, session, begun)
        raise _a_stacks(summary.stack, spec_path, after, "promote")
    if not serves:
        least = _least_acceptance(spec, session, progress)
        _bring(wanted, spec, session, least, agreed, progress, pacing, unguarded)
    _write(spec_path, after)
    _write_lineage(session, proof)
    promoted = _record(spec, session, replace(last, state="serves"))
    progress(Event("done", f"head {proof.bound.head[:16]} serves endpoint {endpoint}"))
    return promoted


def _serves(now: EndpointStatus, planned: Plan) -> bool:
    """Return whether an endpoint serves a plan's spec.

    An update writes the tags last, so after one that was stopped only the config says what serves. The
    config of a stack has a name of the stack's own.
    """
    same = now.summary.spec_hash == planned.spec_hash
    return same and (now.summary.stack is not None or now.config_name == planned.names.config)


def _a_stacks(stack: str, spec_path: Path, fields: Mapping[str, Any], command: str) -> PlanRefused:
    """Return the refusal for a stack's endpoint, with the fields that its deploy must bring."""
    written = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return PlanRefused(
        f"the endpoint belongs to stack {stack}, and only a deploy of the stack changes it. Nothing was"
        " changed.",
        next_step=f"Write into {spec_path}: {written}. Run `cdk deploy {stack} -c spec={spec_path}`, and then"
        f" `peagle-sm learn {command}` again, which records it.",
        details={"findings": [], "fields": dict(fields)},
    )


def settle(
    spec: LearnSpec, session: Session, progress: Progress | None = None, pacing: Pacing | None = None
) -> None:
    """Wait while the endpoint is being updated: SageMaker continues the update of a killed promotion.

    Raises:
        NotFound, EndpointFailed, WaitTimeout: the endpoint does not exist, failed, or takes too long.
    """
    endpoint = need_endpoint(spec)
    if status(endpoint, session=session).summary.status in ON_ITS_WAY:
        wait(endpoint, session=session, progress=progress, pacing=pacing)


def _refuse_unproved(spec: LearnSpec, proof: Proof, session: Session, *, begun: bool) -> None:
    """Compare the proof with everything as it is now.

    Raises:
        PlanRefused: it does not hold.
    """
    if not proof.decision.offered:  # of a head that failed its check, no files were copied
        raise _unproved(proof, faults_of(proof, proof.bound, proof.thresholds))
    manifest = stored_manifest(spec, session)
    bound = bound_of(
        spec, session, staged_hash(proof.bound.head_uri, session), proof.bound.head_uri, manifest
    )
    if begun:
        bound = replace(bound, endpoint_config=proof.bound.endpoint_config)
    faults = faults_of(proof, bound, thresholds_of(spec))
    if faults:
        raise _unproved(proof, faults)


def _unproved(proof: Proof, faults: tuple[str, ...]) -> PlanRefused:
    return PlanRefused(
        f"head {proof.bound.head[:16]} is not promoted: " + "; ".join(faults),
        next_step="Prove a head as everything is now: `peagle-sm learn prove`. Nothing was changed.",
        details={"findings": [], "faults": list(faults)},
    )


def _least_acceptance(spec: LearnSpec, session: Session, progress: Progress) -> float:
    """Return the acceptance length that rolls back: a share of what live traffic had in the last hour.

    Acceptance depends on what the traffic asks: any head has 1.3 at temperature 1 where it has 4 on greedy
    prompts, so the proof's own figure says nothing about live traffic. The 10th percentile of the minutes is
    robust against those of the proof itself. Without live traffic nothing is known, so only the alarm on
    server errors can roll back: no acceptance length is below 1.
    """
    endpoint = need_endpoint(spec)
    namespace, since = acceptance_namespace(endpoint), session.now() - LIVE
    minutes = sorted(cloudwatch.metric_minutes(session, namespace, ACCEPTANCE_METRIC, since))
    if len(minutes) < FEWEST_MINUTES:
        progress(
            Event(
                "check",
                f"{len(minutes)} minutes of the last hour have live acceptance; the alarm on acceptance needs"
                f" {FEWEST_MINUTES}, so only server errors can roll back",
            )
        )
        return 1.0
    least = least_live(minutes, spec.promote.least_acceptance)
    message = f"rolls back below acceptance {least:.2f} in three minutes in a row; live traffic has"
    message += f" {minutes[len(minutes) // 10]:.2f}"
    if len(minutes) < FULL_MINUTES:
        message += (
            f". Only {len(minutes)} minutes of the last hour have data: with so little traffic the alarm on"
            " acceptance seldom fires"
        )
    progress(Event("check", message))
    return least


def least_live(minutes: Sequence[float], share: float) -> float:
    """Return the alarm's threshold: a share of the 10th percentile of the hour's minutes, at least 1.

    Simulated (tests/learn/test_live_alarm.py), an equal head is rolled back in at most 1% of promotions. Of
    heads at 60% of the acceptance length it misses 5% at 20 requests a minute, half at 3, nearly all below 1.
    """
    ordered = sorted(minutes)
    return max(1.0, ordered[len(ordered) // 10] * share)


def _bring(
    wanted: EndpointSpec,
    spec: LearnSpec,
    session: Session,
    least_acceptance: float | None,
    confirm: Callable[[UpdateOffer], bool] | None,
    progress: Progress,
    pacing: Pacing | None,
    unguarded: bool,
) -> Endpoint:
    """Update the endpoint in place."""
    promote_spec = spec.promote
    several = wanted.placement.instance_count > 1
    return update(
        wanted,
        session=session,
        strategy="in-place",
        least_acceptance=least_acceptance,
        canary=Canary(promote_spec.canary_percent, promote_spec.canary_minutes * 60) if several else None,
        confirm=confirm,
        progress=progress,
        pacing=pacing,
        unguarded=unguarded,
    )


def _write(spec_path: Path, fields: Mapping[str, Any]) -> None:
    text = spec_path.read_text(encoding="utf-8")
    written, _ = with_fields(text, fields, str(spec_path))
    if written != text:
        write_file(spec_path, written)


def _write_lineage(session: Session, proof: Proof) -> None:
    """Write into the head's manifest where it comes from."""
    bucket, prefix = s3.split_uri(proof.bound.head_uri)
    sizes = s3.list_sizes(session, bucket, prefix)
    manifest = parse_manifest(s3.read_range(session, bucket, prefix + MANIFEST, 0, sizes[MANIFEST]))
    training: dict[str, Any] = {}
    if "training.json" in sizes:
        with suppress(ValueError):
            document = json.loads(
                s3.read_range(session, bucket, prefix + "training.json", 0, sizes["training.json"])
            )
            training = document if isinstance(document, dict) else {}
    held_out = proof.evidence.held_out
    lineage = {
        "data": proof.bound.data,
        "target": {"model": proof.bound.target, "revision": proof.bound.target_revision},
        "training": training,
        "proof": {
            "made_at": proof.made_at,
            "endpoint": proof.bound.endpoint,
            "held_out": None if held_out is None else asdict(held_out),
            "general": None if proof.evidence.general is None else asdict(proof.evidence.general),
        },
    }
    text = replace(manifest, lineage=lineage).to_json()
    put_bytes(session, bucket, prefix + MANIFEST, text.encode())


def rollback(
    spec: LearnSpec,
    spec_path: Path,
    session: Session,
    *,
    confirm: Callable[[UpdateOffer], bool] | None = None,
    progress: Progress,
    pacing: Pacing | None = None,
    unguarded: bool = False,
) -> Promotion:
    """Bring back the head before the last promotion; a repeated run finishes what a killed one began.

    Raises:
        NotFound: nothing was promoted, or everything is rolled back.
        SpecError: the endpoint's spec was changed otherwise since the promotion.
        PlanRefused: the endpoint is a stack's; the message has the fields for its deploy.
        PeagleError: as `peagle_sm.update`.
    """
    settle(spec, session, progress, pacing)
    open_ = [each for each in promotions(spec, session) if each.state != "rolled-back"]
    if not open_:
        raise NotFound(
            f"no head of {spec.name} is promoted, so there is nothing to roll back",
            next_step=f"`peagle-sm status {need_endpoint(spec)}{session.command_flags()}` shows what serves.",
        )
    last = open_[-1]
    text, locked = spec_path.read_text(encoding="utf-8"), load_spec(spec_path)
    old = with_fields(text, last.before, str(spec_path))[1].locked_as(locked)
    new = with_fields(text, last.after, str(spec_path))[1].locked_as(locked)
    now = status(last.endpoint, session=session)
    tagged, stack = now.summary.spec_hash, now.summary.stack
    plans = [plan_for(each, session, stack=stack is not None) for each in (old, new)]
    if tagged not in [each.spec_hash for each in plans]:
        raise SpecError(
            f"endpoint {last.endpoint} serves another spec than {spec_path} (tag {tagged}), so a rollback"
            " would"
            " also change other fields",
            next_step="Give the spec that serves with --spec, or write the old head into it and run"
            " `peagle-sm update`:"
            f" head_uri: {last.before['head_uri']}",
        )
    is_old = _serves(now, plans[0])
    if not is_old and stack is not None:
        raise _a_stacks(stack, spec_path, last.before, "rollback")
    if not is_old:
        _bring(old, spec, session, None, confirm, progress, pacing, unguarded)
    _write(spec_path, last.before)
    name = last.before["speculation.draft_head"] or "of the catalogue"
    progress(Event("done", f"endpoint {last.endpoint} has the head before the promotion: {name}"))
    return _record(spec, session, replace(last, state="rolled-back"))
