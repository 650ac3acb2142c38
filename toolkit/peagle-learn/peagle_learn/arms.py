"""The arms of a proof: inference components of the serving endpoint where they fit, else endpoints.

A component's lifetime schedule deletes it directly, as an endpoint's does; it is created first. So a killed
proof leaves nothing that stays. The next proof of the same learn.yaml and folder finds what is left by its
names, and deletes it if its tag is this folder's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from peagle_bench.benchmark.endpoint_arm import Described, describe_endpoint
from peagle_bench.compare.arms import called
from peagle_bench.compare.deployments import refuse_taken_names
from peagle_learn.core.homes import HOST_SHARE, Home, Needs, ServingHost, homes, needs_of
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.errors import is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    CredentialsError,
    EndpointFailed,
    NotFound,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.plan.payloads import component
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, partition, sagemaker_target
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import delete, status
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.inventory.inspection import patience_s
from peagle_sm.service.inventory.resources import Belongings, belongings_of
from peagle_sm.service.progress import Pacing, Progress, Reporter, once_visible

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


def component_requests(plan: Plan, home: Home, variant: str) -> tuple[dict[str, Any], ...]:
    """Return CreateSchedule, CreateModel and CreateInferenceComponent of an arm, in this order."""
    name, tags = plan.names.endpoint, plan.parameters("create_endpoint")["Tags"]
    own = plan.parameters("create_endpoint_config")["ProductionVariants"][0]
    last = plan.parameters("create_schedule")
    target = {
        **last["Target"],
        "Arn": sagemaker_target(partition(plan.draft.region), "deleteInferenceComponent"),
        "Input": json.dumps({"InferenceComponentName": name}),
    }
    schedule = {
        **last,
        "Name": hard_schedule_name(name),
        "Description": f"peagle-sm: deletes inference component {name} at the end of its lifetime",
        "Target": target,
    }
    body = component(plan.draft, plan.names, {**own, "VariantName": variant})
    needs: dict[str, Any] = {"MinMemoryRequiredInMb": home.needs.memory_mb}
    if home.needs.accelerators:
        needs["NumberOfAcceleratorDevicesRequired"] = float(home.needs.accelerators)
    else:
        needs["NumberOfCpuCoresRequired"] = 1.0
    return (
        schedule,
        plan.parameters("create_model"),
        {
            **body,
            "InferenceComponentName": name,
            "EndpointName": home.host,
            "Specification": {**body["Specification"], "ComputeResourceRequirements": needs},
            "RuntimeConfig": {"CopyCount": 1},
            "Tags": tags,
        },
    )


class Components:
    """Context manager of arms as components of the serving endpoint; every exit deletes them."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        homes: Mapping[str, Home],
        session: Session,
        *,
        unguarded: bool = False,
        progress: Progress | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._plans, self._homes, self._session = plans, homes, session
        self._unguarded = unguarded
        self._pacing = pacing or Pacing.for_session(session)
        self._report = Reporter(progress, self._pacing, 0.0)
        self._made: list[Plan] = []
        self._created: set[str] = set()  # components and models whose creation SageMaker confirmed

    def __enter__(self) -> Self:
        """Create the components and wait until they are in service.

        Raises:
            PlanRefused: they do not fit any more; nothing was created.
            EndpointFailed: one did not start; all are deleted.
        """
        if not self._unguarded:
            require_guard(self._session)
        try:
            for name, plan in self._plans.items():
                self._create(plan, self._homes[name])
            for plan in self._plans.values():
                self._follow(plan)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the components with their models and schedules.

        Raises:
            BillableLeft: a deletion could not be confirmed; the lifetime schedule still exists.
        """
        self._leave()

    def _create(self, plan: Plan, home: Home) -> None:
        name = plan.names.endpoint
        facts = control.describe_endpoint(self._session, str(home.host))
        variants = [] if facts is None else facts.raw.get("ProductionVariants", [])
        if not variants:
            raise NotFound(f"endpoint {home.host} no longer serves", next_step="Deploy it, and prove again.")
        if control.describe_component(self._session, name) is not None:
            raise PlanRefused(
                f"inference component {name} exists since the question was asked; it was not changed.",
                next_step="Another proof of this name may run: wait for it, and prove again.",
                details={"findings": []},
            )
        schedule, model, asked = component_requests(plan, home, variants[0]["VariantName"])
        self._made.append(plan)
        self._send(lambda: lifetime.arm(self._session, schedule))
        self._send(lambda: control.create_model(self._session, model))
        self._created.add(plan.names.model)
        sagemaker = self._session.api("sagemaker", once=True)
        self._send(lambda: sagemaker.create_inference_component(**asked))
        self._created.add(name)
        self._report("endpoint", f"inference component {name} created on {home.host}")

    def _send(self, send: Callable[[], object]) -> None:
        once_visible(send, self._pacing, self._report)

    def _follow(self, plan: Plan) -> None:
        name = plan.names.endpoint
        deadline = self._pacing.monotonic() + patience_s(plan.spec.startup_timeout_s)
        while True:
            facts = control.describe_component(self._session, name) or {}
            state = facts.get("InferenceComponentStatus", "gone")
            if state == "InService":
                self._report("ready", f"inference component {name} is in service")
                return
            if state in ("Failed", "gone", "Deleting") or self._pacing.monotonic() >= deadline:
                reason = facts.get("FailureReason", f"it is {state}")
                raise EndpointFailed(
                    f"Inference component {name} failed to start: {reason}",
                    next_step="Prove again: if it does not fit then, it becomes an endpoint of its own.",
                    details={"failure_reason": reason},
                )
            self._report("waiting", f"inference component {name}", status=state)
            self._pacing.sleep(self._pacing.poll_s)

    def _leave(self) -> None:
        """Delete what this run created; what has one of its names and another tag is kept."""
        marks = {plan.names.endpoint: plan.tags()[MARK] for plan in self._made}
        remove_components(self._session, marks, self._pacing, self._report, created=self._created)
        for plan in self._made:
            name = plan.names.model
            why = _remove_model(self._session, name, plan.tags()[MARK], name in self._created)
            if why is not None:
                command = f"aws sagemaker delete-model --region {self._session.region} --model-name {name}"
                self._report("delete", f"model {name} may remain, at no cost ({why}); `{command}` deletes it")


def _mark_of(session: Session, arn: str, default: str | None) -> str | None:
    """Return the tag of an arm; ``default`` if it cannot be seen.

    Raises:
        CredentialsError: the tags must not be read, and there is no default.
    """
    try:
        return (control.tags_of(session, arn) or {}).get(MARK, default)
    except CredentialsError:
        if default is None:
            raise
        return default


def _remove_model(session: Session, name: str, mark: str, created: bool) -> str | None:
    """Delete a model unless it is another's; return why one of ours may remain."""
    try:
        facts = control.describe_model(session, name)
        found = None if facts is None else _mark_of(session, facts.arn, mark if created else None)
        if facts is not None and found is None:
            return f"without the tag {MARK} that says whose it is"
        if found == mark:
            control.delete_model(session, name)
    except NotFound:
        return None
    except PeagleError as error:
        return error.message
    return None


def remove_components(
    session: Session,
    marks: Mapping[str, str],
    pacing: Pacing,
    report: Reporter,
    *,
    created: Collection[str] = (),
) -> None:
    """Delete components, wait until they are gone, and delete their schedules; what is missing is no error.

    ``marks`` has the tag that each must have; one with another tag is not ours, and is kept. One without the
    tag is deleted only if it is among ``created``, the names that this run created. While a component exists,
    its schedule stays. Ctrl-C leaves the rest to the lifetime schedules, which are set to now.

    Raises:
        BillableLeft: a deletion could not be confirmed.
    """
    left: dict[str, str] = {}
    waiting = dict(marks)
    deadline = pacing.monotonic() + pacing.delete_timeout_s
    try:
        while waiting:
            for name, mark in list(waiting.items()):  # one that cannot be deleted yet delays no other
                state, reason = _ask(session, name, mark, name in created)
                if state is None:
                    del waiting[name]
                    if reason is not None:
                        left[name] = reason
                    else:
                        _remove_limit(session, name)
                elif pacing.monotonic() >= deadline:
                    del waiting[name]
                    left[name] = f"still {state}"
                else:
                    report("delete", f"inference component {name}", status="Deleting")
            if waiting:
                pacing.sleep(pacing.poll_s)
    except KeyboardInterrupt:
        for name in waiting:
            left[name] = "interrupted; its lifetime schedule was set to now"
            limit = _limit_of(session, name)
            if limit is not None:
                lifetime.bring_forward(session, limit, pacing.clock())
    if left:
        raise _left(session, left)


def _remove_limit(session: Session, name: str) -> None:
    limit = _limit_of(session, name)
    # A component that is there by now is another proof's, and so is the schedule of that name.
    if limit is not None and control.describe_component(session, name) is None:
        with suppress(NotFound):
            lifetime.remove(session, limit.name)


def _limit_of(session: Session, name: str) -> lifetime.Lifetime | None:
    """Return the lifetime schedule of a component of that name; that of an endpoint is none."""
    limit = lifetime.get(session, hard_schedule_name(name))
    target = {} if limit is None else limit.raw.get("Target") or {}
    told = json.dumps({"InferenceComponentName": name})
    arn, said = str(target.get("Arn", "")), target.get("Input")
    return limit if arn.endswith(":deleteInferenceComponent") and said == told else None


def _ask(session: Session, name: str, mark: str, created: bool) -> tuple[str | None, str | None]:
    """Send a component's deletion, unless it belongs to another proof.

    Returns:
        Its status while it exists, and why it may remain; both None if none of ours is left.
    """
    state = "unknown"
    try:
        facts = control.describe_component(session, name)
        if facts is None:
            return None, None
        state = str(facts["InferenceComponentStatus"])
        current_mark = _mark_of(session, facts["InferenceComponentArn"], mark if created else None)
        if current_mark is None and state != "Deleting":
            return None, f"{state}, without the tag {MARK} that says whose it is"
        if current_mark not in (None, mark):
            return None, None
        if state != "Deleting":
            control.delete_component(session, name)
    except NotFound:
        return None, None
    except PeagleError as error:
        if not is_refused_now(error):
            return None, error.message
    return state, None


def _left(session: Session, left: Mapping[str, str]) -> BillableLeft:
    told = "; ".join(f"{name} ({why})" for name, why in left.items())
    command = f"aws sagemaker delete-inference-component --region {session.region} --inference-component-name"
    return BillableLeft(
        f"Inference components may remain, and would keep their instance running: {told}",
        next_step="Run "
        + ", ".join(f"`{command} {name}`" for name in left)
        + "; otherwise the lifetime schedules delete them.",
        details={"resources": [f"inference-component/{name}" for name in left], "region": session.region},
    )


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
    marks = {each.name: each.tags[MARK] for each in arms if each.name in shown and each.name in now}
    remove_components(session, marks, pacing, Reporter(progress, pacing))
    # A component's only rest was its schedule.
    delete(list(marks), session=session, progress=progress, missing_ok=True)


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
            stack.enter_context(Components(hosted, homes, session, unguarded=unguarded, progress=progress))
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
