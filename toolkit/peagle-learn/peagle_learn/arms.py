"""The arms of a proof: inference components of the serving endpoint where they fit, else endpoints.

A component's lifetime schedule deletes it directly, as an endpoint's does; it is created first. So a killed
proof leaves nothing that stays. The next proof of the same learn.yaml and folder finds what is left by its
names, and deletes it if its tag is this folder's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from peagle_bench.benchmark.endpoint_arm import Described, describe_endpoint
from peagle_bench.compare.arms import called
from peagle_bench.compare.deployments import refuse_taken_names
from peagle_bench.components import ComponentArm, Components, component_arm, remove_components
from peagle_learn.core.homes import HOST_SHARE, Home, Needs, ServingHost, homes, needs_of
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.plan.tags_and_schedules import component_schedule, hard_schedule_name
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import delete, status
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.inventory.resources import Belongings, belongings_of
from peagle_sm.service.progress import Pacing, Progress, Reporter

MARK = "learn"  #: tag of the arms: the spec's name, and the mark of the folder that the proof runs in
_MARK_FILE, _MARK = "arms", re.compile(r"[0-9a-f]{12}")


def mark_of(owner: str, work: Path) -> str:
    """Return the tag of the arms of a work folder, which keeps its mark from run to run.

    A proof of the same name in another folder or on another machine has another: it may still run.
    """
    path = work / _MARK_FILE
    known = path.read_text("utf-8", "replace").strip() if path.is_file() else ""
    if not _MARK.fullmatch(known):
        known = uuid4().hex[:12]
        write_file(path, f"{known}\n", parents=True)
    return f"{owner}/{known}"


def arm_spec(made: EndpointSpec, owner: str, name: str, hours: float, mark: str) -> EndpointSpec:
    """Name an arm after learn.yaml, so that the next run finds a killed one's, and limit its lifetime.

    One instance is enough: requests are sent one at a time.
    """
    lifetime_hours = min(made.lifecycle.max_lifetime_hours, hours)
    return made.model_copy(
        update={
            "name": f"{owner}-proof-{name}",
            "placement": made.placement.model_copy(update={"instance_count": 1}),
            "lifecycle": made.lifecycle.model_copy(update={"max_lifetime_hours": lifetime_hours}),
            "tags": {**made.tags, MARK: mark},
        }
    )


def leftovers_of(session: Session, arms: Collection[EndpointSpec]) -> tuple[str, ...]:
    """Return the arms that a killed proof of the same learn.yaml and folder left behind.

    Everything of the name must have their tag; a schedule has no tags, and counts only where it is alone.

    Raises:
        PlanRefused: something else has the name of an arm, perhaps an arm of a proof that still runs.
    """
    found = []
    for arm in arms:
        one, mark = belongings_of(session, arm.name), arm.tags[MARK]
        component = control.describe_component(session, arm.name)
        marks = [tags.get(MARK, "none") for tags in _tags_of_all(session, one, component)]
        if any(each != mark for each in marks):
            told = ", ".join(sorted({each for each in marks if each != mark}))
            kind = "inference component" if component is not None else "endpoint"
            raise PlanRefused(
                f"{kind} {arm.name} exists, and no proof in this folder created it (its tag {MARK}: {told})."
                " Nothing was created.",
                next_step="A proof of the same name may run in another folder or on another machine: wait for"
                " it. If it was killed and its folder is lost, its lifetime schedule deletes it; after that,"
                f" `peagle-sm delete {arm.name}` deletes the rest. Otherwise give learn.yaml another name.",
                details={"findings": [], "marks": marks},
            )
        if marks or (one.lifetime is not None and one.lifetime.stack is None):
            found.append(arm.name)
    refuse_taken_names(session, [each.name for each in arms if each.name not in found])
    return tuple(found)


def _tags_of_all(
    session: Session, one: Belongings, component: Mapping[str, Any] | None
) -> Iterator[Mapping[str, str]]:
    """Yield the tags of what peagle-sm created under a name, and of the component of that name."""
    arns = [] if component is None else [str(component["InferenceComponentArn"])]
    arns += [] if one.endpoint is None else [one.endpoint.arn]
    described = (
        *(control.describe_endpoint_config(session, name) for name in one.configs),
        *(control.describe_model(session, name) for name in one.models),
    )
    arns += [each.arn for each in described if each is not None]
    for arn in arns:
        tags = control.tags_of(session, arn)
        if tags is not None:  # None: deleted since
            yield tags


def homes_of(
    session: Session,
    endpoint: str,
    plans: Mapping[str, Plan],
    needs: Mapping[str, Needs | None],
    hours: float,
) -> dict[str, Home]:
    """Choose where each arm runs, the first one first; read from what the endpoint runs now.

    Raises:
        CredentialsError, ServiceFault: the endpoint's components cannot be read.
    """
    first = next(iter(plans.values()))
    host = _host(session, endpoint, first, {plan.names.endpoint for plan in plans.values()})
    return homes(host, {name: needs[name] for name in plans}, hours * 60)


def needs_with(plan: Plan, head_mb: int) -> Needs | None:
    """Return what an arm needs with a head whose size the catalogue does not have; 0 without a head."""
    needs = needs_of(plan)
    if needs is None or needs.accelerators:
        return needs
    return needs + Needs(0, head_mb)


def _host(session: Session, endpoint: str, plan: Plan, without: set[str]) -> ServingHost:
    facts = control.describe_endpoint(session, endpoint)
    config = None if facts is None else control.describe_endpoint_config(session, facts.config_name)
    if facts is None or config is None or config.model_name is not None:
        return ServingHost(endpoint, "", has_components=False)
    taken = Needs(0, 0)
    for name in control.component_names(session, endpoint):
        # A component with a base has no needs of its own: it runs inside the base's copies.
        found = control.describe_component(session, name) if name not in without else None
        asked = (found or {}).get("Specification", {}).get("ComputeResourceRequirements", {})
        runs = (found or {}).get("RuntimeConfig", {})
        for _ in range(max(runs.get("DesiredCopyCount", 0), runs.get("CurrentCopyCount", 0))):
            accelerators = math.ceil(asked.get("NumberOfAcceleratorDevicesRequired", 0))
            taken += Needs(accelerators, int(asked.get("MinMemoryRequiredInMb", 0)))
    kind = config.instance_type or ""
    entry = plan.draft.instance(kind)
    has = None
    if entry is not None:
        has = Needs(entry.gpu_count, int((entry.host_memory_gb or 0) * 1000 * HOST_SHARE))
    ends = status(endpoint, session=session).summary.expires_at
    left = None if ends is None else (ends - session.now()).total_seconds() / 60
    return ServingHost(endpoint, kind, True, facts.instance_count or 0, has, taken, left)


def component_of(plan: Plan, home: Home) -> ComponentArm:
    """Plan an arm as a component of the serving endpoint."""
    needs: dict[str, Any] = {"MinMemoryRequiredInMb": home.needs.memory_mb}
    if home.needs.accelerators:
        needs["NumberOfAcceleratorDevicesRequired"] = float(home.needs.accelerators)
    else:
        needs["NumberOfCpuCoresRequired"] = 1.0
    name = plan.names.endpoint
    schedule = component_schedule(name, plan.parameters("create_schedule"), name)
    return component_arm(plan, str(home.host), needs, {**schedule, "Name": hard_schedule_name(name)})


def remove_leftovers(
    session: Session, arms: Collection[EndpointSpec], shown: Collection[str], progress: Progress | None
) -> None:
    """Delete what a killed proof left: components first, then endpoints, configs, models and schedules.

    ``shown`` are the names that the question had; what has a name and is not of that proof any more is kept.

    Raises:
        PlanRefused: something else has the name of an arm by now. Nothing was deleted.
        BillableLeft: a deletion could not be confirmed.
    """
    pacing, now = Pacing.for_session(session), leftovers_of(session, arms)
    left = [each.name for each in arms if each.name in shown and each.name in now]
    schedules, mark = {name: hard_schedule_name(name) for name in left}, next(iter(arms)).tags[MARK]
    remove_components(session, schedules, (MARK, mark), pacing, Reporter(progress, pacing))
    # A component's only rest was its schedule.
    delete(left, session=session, progress=progress, missing_ok=True)


def running(
    plans: Mapping[str, Plan],
    homes: Mapping[str, Home],
    session: Session,
    *,
    fleet: Callable[..., Any],
    unguarded: bool,
    progress: Progress,
) -> ExitStack:
    """Return a context in which all arms run, the components first; ``fleet`` deploys the endpoints.

    Raises:
        PlanRefused: a component does not fit any more; nothing was created.
    """
    hosted = {name: plan for name, plan in plans.items() if homes[name].host is not None}
    for host in {homes[name].host for name in hosted}:
        hours = max(plan.spec.lifecycle.max_lifetime_hours for plan in hosted.values())
        needs = {name: homes[name].needs for name in hosted}
        for name, now in homes_of(session, str(host), hosted, needs, hours).items():
            if now.host is None:
                raise PlanRefused(
                    f"the {name} arm does not fit on {host} any more: {now.why}. Nothing was created.",
                    next_step="Prove again: it becomes an endpoint of its own, at the price that is shown.",
                    details={"findings": []},
                )
    alone = {name: plan.spec for name, plan in plans.items() if homes[name].host is None}
    with ExitStack() as stack:
        if hosted:
            if not unguarded:
                require_guard(session)
            pacing = Pacing.for_session(session)
            components = Components(
                [component_of(plan, homes[name]) for name, plan in hosted.items()],
                (MARK, next(iter(hosted.values())).tags()[MARK]),  # all arms of a proof have the same
                session,
                pacing,
                Reporter(progress, pacing, 0.0),
                if_one_fails="Prove again: if it does not fit then, it becomes an endpoint of its own.",
            )
            stack.enter_context(components)
        if alone:
            stack.enter_context(fleet(alone, session, unguarded=unguarded, progress=progress))
        return stack.pop_all()


def described_arm(session: Session, name: str, plan: Plan, home: Home) -> Described:
    """Describe an arm that runs; a component's mode and K are its plan's: the endpoint's tags are others."""
    own = plan.names.endpoint
    if home.host is None:
        return called(describe_endpoint(session, own), name, 1)
    found = describe_endpoint(session, home.host, component=own)
    draft = plan.draft
    tokens = draft.num_speculative_tokens if draft.speculating else None
    arm = replace(found.arm, mode=draft.mode, num_speculative_tokens=tokens)
    origin = {"region": session.region, "image": found.origin.get("image"), "component": own}
    return called(replace(found, arm=arm, origin=origin), name, 1)
