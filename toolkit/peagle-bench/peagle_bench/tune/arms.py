"""Arms of a tuning: one endpoint per arm, or one endpoint with an inference component per arm.

As inference components the arms share one instance. Each has its own model (with the draft head) and the
accelerators of one replica, so an instance with eight accelerators runs up to eight arms for one price.
`hosted` creates this endpoint and deletes it at the end, also after an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from peagle_bench.compare.arms import spec_of
from peagle_bench.compare.deployments import refuse_taken_names
from peagle_bench.components import ComponentArm, Components, component_arm
from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, SpecError
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.plan.memory import compute_requirements
from peagle_sm.core.plan.tags_and_schedules import ENDPOINT, MODE, component_schedule, lifetime_schedule
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode, Row
from peagle_sm.service import Endpoint, Pacing, delete
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.inventory.inspection import follow_endpoint
from peagle_sm.service.progress import Progress, Reporter, once_visible

PREFIX = "tune"
MOST_CHARACTERS = 63  #: limit of SageMaker's names


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Parse ``p-eagle,eagle3`` into the modes to tune, in that order.

    Raises:
        SpecError: no mode, mode none, an unknown or a repeated mode.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known: dict[str, Mode] = {"p-eagle": "p-eagle", "eagle3": "eagle3"}
    if not words or len(set(words)) < len(words) or any(word not in known for word in words):
        raise SpecError(
            f"--modes: found {text!r}; allowed: p-eagle, eagle3 or both, each once.",
            next_step="For example --modes p-eagle,eagle3. Mode none is always measured as the baseline.",
        )
    return tuple(known[word] for word in words)


def arm_spec(
    base: EndpointSpec, mode: Mode, k: int | None, *, runtime: bool = False, head: str | None = None
) -> EndpointSpec:
    """Derive the spec of one arm; with ``runtime`` it starts with the largest K and requests set K.

    Raises:
        SpecError: no head for the mode, or the name is too long for SageMaker.
    """
    made = spec_of(base, mode, k=k, head=head)
    fields: dict[str, Any] = made.model_dump(exclude_unset=True)
    fields["name"] = arm_name(base.name, mode, None if runtime else k)
    if runtime:
        serving = fields.get("serving", {})
        fields["serving"] = {**serving, "env": {**serving.get("env", {}), RUNTIME_K: "1"}}
    return EndpointSpec(**fields).locked_as(base)


def table_spec(
    base: EndpointSpec, mode: Mode, rows: Sequence[Row], *, head: str | None = None
) -> EndpointSpec:
    """Derive the spec of the arm with a table of K; ``rows`` are [first batch size, last one, K].

    Raises:
        SpecError: no head for the mode, or the name is too long for SageMaker.
    """
    made = spec_of(base, mode, k=max(k for _, _, k in rows), head=head)
    fields: dict[str, Any] = made.model_dump(exclude_unset=True)
    fields["name"] = arm_name(base.name, mode, None, "table")
    fields["speculation"] = {
        **fields["speculation"],
        "num_speculative_tokens_per_batch_size": [list(row) for row in rows],
    }
    return EndpointSpec(**fields).locked_as(base)


def arm_name(base: str, mode: str, k: int | None, *words: str) -> str:
    """Return the endpoint's name: ``tune-tiny-code-p-eagle-k7``, or with other words in place of the K.

    Raises:
        SpecError: the name is too long for SageMaker.
    """
    stem = base
    for ending in MODES:
        stem = stem.removesuffix(f"-{ending}")
    name = "-".join([PREFIX, stem, mode, *([f"k{k}"] if k else []), *words])
    if len(name) > MOST_CHARACTERS:
        raise SpecError(
            f"name: the tuning needs the endpoint name {name!r} with {len(name)} characters; "
            f"allowed: at most {MOST_CHARACTERS}.",
            next_step="Give the spec a shorter name.",
        )
    return name


def label(mode: str, k: int) -> str:
    """Return an arm's name in a results file: ``p-eagle K=7``, ``none``.

    ``p-eagle K=0`` is an engine with a draft head whose drafts are turned off.
    """
    return "none" if mode == "none" else f"{mode} K={k}"


def parse_label(text: str) -> tuple[str, int]:
    """Parse mode and K from an arm's name, as `label` wrote it."""
    mode, _, k = text.partition(" K=")
    return mode, int(k or 0)


_PLACED = ("ExecutionRoleArn", "EnableNetworkIsolation", "VpcConfig")
_HOST_MEMORY = 0.9  #: share of the memory of a host without accelerators for all components


@dataclass(frozen=True)
class HostPlan:
    """One endpoint with all arms as components; its own requests are ``schedule``, ``config``, ``create``."""

    endpoint: str
    arms: Mapping[str, ComponentArm]
    schedule: dict[str, Any]
    config: dict[str, Any]
    create: dict[str, Any]
    usd_per_hour: float | None

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request in order: the schedules first, and of them the endpoint's last."""
        arms = self.arms.values()
        return (
            *(Request("scheduler", "create_schedule", arm.schedule) for arm in arms),
            Request("scheduler", "create_schedule", self.schedule),
            *(Request("sagemaker", "create_model", arm.model) for arm in arms),
            Request("sagemaker", "create_endpoint_config", self.config),
            Request("sagemaker", "create_endpoint", self.create),
            *(Request("sagemaker", "create_inference_component", arm.component) for arm in arms),
        )


def host_plan(spec_name: str, plans: Mapping[str, Plan]) -> HostPlan:
    """Plan one endpoint for all arms; ``plans`` are the arms' plans as separate endpoints.

    Raises:
        SpecError: the instance has too few accelerators for all arms.
        PlanRefused: an arm's plan has no requests.
    """
    endpoint = f"{PREFIX}-{spec_name}"
    first = next(iter(plans.values()))
    template = first.parameters("create_endpoint_config")
    variant = {key: value for key, value in template["ProductionVariants"][0].items() if key != "ModelName"}
    variant["InitialInstanceCount"] = 1
    needs = _requirements(first, len(plans))
    tags = _tags(first.parameters("create_endpoint")["Tags"], endpoint)
    model, draft = first.parameters("create_model"), first.draft
    expiry = first.parameters("create_schedule")["StartDate"]
    last = lifetime_schedule(endpoint, draft.region, draft.scheduler_role_arn, expiry)
    arms = {
        # With the endpoint's numbers and expiry, the guard and `peagle-sm delete` find these schedules.
        arm: component_arm(
            plan, endpoint, needs, component_schedule(endpoint, last, plan.names.endpoint, number), tags=tags
        )
        for number, (arm, plan) in enumerate(plans.items(), start=1)
    }
    config = f"{endpoint}-{first.spec_hash[:8]}"
    return HostPlan(
        endpoint=endpoint,
        arms=arms,
        schedule=last,
        config={
            **template,
            "EndpointConfigName": config,
            "ProductionVariants": [variant],
            **{key: model[key] for key in _PLACED if key in model},
            "Tags": tags,
        },
        create={"EndpointName": endpoint, "EndpointConfigName": config, "Tags": tags},
        usd_per_hour=first.usd_per_hour,
    )


def _requirements(plan: Plan, arms: int) -> dict[str, Any]:
    draft = plan.draft
    facts = draft.instance(draft.instance_types[0])
    needs = compute_requirements(draft)
    each = int(needs.get("NumberOfAcceleratorDevicesRequired", 0))
    if not each:
        memory = int((facts.host_memory_gb if facts and facts.host_memory_gb else 0) * 1000 * _HOST_MEMORY)
        return {"NumberOfCpuCoresRequired": 1.0, "MinMemoryRequiredInMb": max(128, memory // arms)}
    have = facts.gpu_count if facts is not None else 0
    if have < arms * each:
        raise SpecError(
            f"placement.instance_types: {draft.instance_types[0]} has {have} accelerators; {arms} arms "
            f"need {arms * each}.",
            next_step="Use an instance with more accelerators, fewer arms, or leave --components out.",
            details={"have": have, "needed": arms * each},
        )
    return needs


def _tags(tags: list[dict[str, str]], endpoint: str) -> list[dict[str, str]]:
    """Set the endpoint's name in the arms' tags: deletion finds the components by this tag."""
    other = {ENDPOINT: endpoint, MODE: "none"}
    return [{**tag, "Value": other.get(tag["Key"], tag["Value"])} for tag in tags]


@contextmanager
def hosted(
    plan: HostPlan,
    session: Session,
    *,
    unguarded: bool = False,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> Iterator[Endpoint]:
    """Create the plan's endpoint with all components, and delete everything at the end.

    Raises:
        GuardMissing: the guard is not installed, and not ``unguarded``.
        PlanRefused: a name is already in use.
        EndpointFailed: the endpoint or a component failed to start; everything is deleted.
        BillableLeft: a deletion could not be confirmed; the lifetime schedules still exist.
    """
    pacing = pacing or Pacing.for_session(session)
    report = Reporter(progress, pacing, plan.usd_per_hour)
    if not unguarded:
        require_guard(session)
    refuse_taken_names(session, [plan.endpoint])
    arms, mark = list(plan.arms.values()), (ENDPOINT, plan.endpoint)
    components = Components(arms, mark, session, pacing, report, own_endpoint=plan.endpoint)
    try:
        lifetime.remove_hard(session, plan.endpoint)
        components.schedule()
        once_visible(partial(lifetime.arm, session, plan.schedule), pacing, report)
        components.create_models()
        _create_endpoint(plan, session, pacing, report, arms[0].patience_s)
        components.start()
        yield Endpoint(plan.endpoint, session, pacing=pacing)
    finally:
        try:
            components.remove()
        except BillableLeft as left:
            raise _with_its_endpoint(left, plan.endpoint, session) from left
        # Models, config and endpoint, by their tags.
        delete([plan.endpoint], session=session, progress=progress, pacing=pacing, missing_ok=True)


def _create_endpoint(
    plan: HostPlan, session: Session, pacing: Pacing, report: Reporter, patience_s: float
) -> None:
    for request in plan.requests:
        if request.operation in ("create_endpoint_config", "create_endpoint"):
            once_visible(partial(executor.send, session, request, once=True), pacing, report)
    report.start_billing()
    report("endpoint", f"endpoint {plan.endpoint} created")
    follow_endpoint(
        session,
        plan.endpoint,
        plan.config["EndpointConfigName"],
        patience=patience_s,
        pacing=pacing,
        report=report,
        note=lambda facts: None,
    )


def _with_its_endpoint(left: BillableLeft, endpoint: str, session: Session) -> BillableLeft:
    """Add the endpoint, which SageMaker does not delete before its components."""
    return BillableLeft(
        f"Endpoint {endpoint} may remain. {left.message}",
        next_step=f"{left.next_step} Then run `peagle-sm delete {endpoint} --yes{session.command_flags()}`.",
        details={**left.details, "resources": [f"endpoint/{endpoint}", *left.details["resources"]]},
    )
