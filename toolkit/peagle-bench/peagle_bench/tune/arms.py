"""Endpoints of a tuning: one endpoint per arm, or one endpoint with an inference component per arm.

Arms as inference components share one endpoint on one instance. Each component has its own model
(``ModelName``, with the draft head) and the accelerators of one replica, so an instance with eight
accelerators runs up to eight arms for one price. The lifetime schedules delete the components too: SageMaker
refuses to delete an endpoint that has any. `Host` creates this endpoint and deletes it at the end, also after
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from peagle_bench.compare.arms import spec_of
from peagle_bench.compare.deployments import refuse_taken_names
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.sagemaker import component_names, describe_component
from peagle_sm.aws.session.errors import aws_errors, is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, EndpointFailed, NotFound, PeagleError, SpecError
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.plan.memory import compute_requirements
from peagle_sm.core.plan.payloads import Request
from peagle_sm.core.plan.tags_and_schedules import (
    ENDPOINT,
    MODE,
    component_schedule,
    lifetime_schedule,
)
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode, Row
from peagle_sm.service import Endpoint, Pacing, delete
from peagle_sm.service.inventory.guard_state import require_guard
from peagle_sm.service.inventory.inspection import follow_endpoint, patience_s
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
    """Requests that create the endpoint, in order; ``components`` are the components' names by arm."""

    endpoint: str
    requests: tuple[Request, ...]
    components: Mapping[str, str]
    usd_per_hour: float | None
    schedules: tuple[str, ...]
    startup_timeout_s: int

    def of(self, operation: str) -> list[dict[str, Any]]:
        """Return the parameters of each request of one operation."""
        return [one.parameters for one in self.requests if one.operation == operation]


def host_name(spec_name: str) -> str:
    """Return the name of the endpoint that has all components."""
    return f"{PREFIX}-{spec_name}"


def host_plan(spec_name: str, plans: Mapping[str, Plan]) -> HostPlan:
    """Plan one endpoint for all arms; ``plans`` are the arms' plans as separate endpoints.

    Raises:
        SpecError: the instance has too few accelerators for all arms.
        PlanRefused: an arm's plan has no requests.
    """
    endpoint = host_name(spec_name)
    first = next(iter(plans.values()))
    template = first.parameters("create_endpoint_config")
    variant = {key: value for key, value in template["ProductionVariants"][0].items() if key != "ModelName"}
    variant["InitialInstanceCount"] = 1
    needs = _requirements(first, len(plans))
    tags = _tags(first.parameters("create_endpoint")["Tags"], endpoint)
    models, components, names = [], [], {}
    for arm, plan in plans.items():
        body = {**plan.parameters("create_model"), "ModelName": plan.names.model, "Tags": tags}
        models.append(Request("sagemaker", "create_model", body))
        names[arm] = plan.names.endpoint
        timeouts = ("ModelDataDownloadTimeoutInSeconds", "ContainerStartupHealthCheckTimeoutInSeconds")
        specification = {
            "ModelName": plan.names.model,
            "StartupParameters": {key: variant[key] for key in timeouts},
            "ComputeResourceRequirements": needs,
        }
        component = {
            "InferenceComponentName": plan.names.endpoint,
            "EndpointName": endpoint,
            "VariantName": variant["VariantName"],
            "Specification": specification,
            "RuntimeConfig": {"CopyCount": 1},
            "Tags": tags,
        }
        components.append(Request("sagemaker", "create_inference_component", component))
    model = first.parameters("create_model")
    config = {
        **template,
        "EndpointConfigName": f"{endpoint}-{first.spec_hash[:8]}",
        "ProductionVariants": [variant],
        **{key: model[key] for key in _PLACED if key in model},
        "Tags": tags,
    }
    schedules = _schedules(endpoint, first, list(names.values()))
    return HostPlan(
        endpoint=endpoint,
        requests=(
            *schedules,
            *models,
            Request("sagemaker", "create_endpoint_config", config),
            Request(
                "sagemaker",
                "create_endpoint",
                {
                    "EndpointName": endpoint,
                    "EndpointConfigName": config["EndpointConfigName"],
                    "Tags": tags,
                },
            ),
            *components,
        ),
        components=names,
        usd_per_hour=first.usd_per_hour,
        schedules=tuple(one.parameters["Name"] for one in schedules),
        startup_timeout_s=first.spec.startup_timeout_s,
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


def _schedules(endpoint: str, plan: Plan, components: list[str]) -> list[Request]:
    """Make the lifetime schedules: for each component, and last for the endpoint."""
    context = plan.context
    if context.now is None:
        return []
    draft = plan.draft
    hours = timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    expiry = context.now.replace(microsecond=0) + hours
    last = lifetime_schedule(endpoint, draft.region, draft.scheduler_role_arn, expiry)
    every = [
        component_schedule(endpoint, last, component, number)
        for number, component in enumerate(components, start=1)
    ]
    return [Request("scheduler", "create_schedule", body) for body in (*every, last)]


class Host:
    """Context manager that creates the plan's endpoint with all components, and deletes it at the end."""

    def __init__(
        self,
        plan: HostPlan,
        session: Session,
        *,
        unguarded: bool = False,
        progress: Progress | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._plan = plan
        self._session = session
        self._unguarded = unguarded
        self._progress = progress
        self._pacing = pacing or Pacing.for_session(session)
        self._report = Reporter(progress, self._pacing, plan.usd_per_hour)
        self.endpoint = Endpoint(plan.endpoint, session, pacing=self._pacing)

    def __enter__(self) -> Self:
        """Create everything and wait until every component is in service.

        Raises:
            GuardMissing: the guard is not installed, and not ``unguarded``.
            PlanRefused: the name is already in use.
            EndpointFailed: the endpoint or a component failed to start; everything is deleted.
        """
        if not self._unguarded:
            require_guard(self._session)
        refuse_taken_names(self._session, [self._plan.endpoint])
        try:
            self._create()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete everything.

        Raises:
            BillableLeft: a deletion could not be confirmed; the lifetime schedules still exist.
        """
        self._leave()

    def _create(self) -> None:
        lifetime.remove_hard(self._session, self._plan.endpoint)
        for parameters in self._plan.of("create_schedule"):
            once_visible(partial(lifetime.arm, self._session, parameters), self._pacing, self._report)
        self._report("lifetime", f"lifetime schedules created: {len(self._plan.schedules)}")
        for operation in ("create_model", "create_endpoint_config", "create_endpoint"):
            self._send(operation)
        self._report.start_billing()
        follow_endpoint(
            self._session,
            self._plan.endpoint,
            self._plan.of("create_endpoint_config")[0]["EndpointConfigName"],
            patience=patience_s(self._plan.startup_timeout_s),
            pacing=self._pacing,
            report=self._report,
            note=lambda facts: None,
        )
        self._send("create_inference_component")
        self._wait(self._serving, patience_s(self._plan.startup_timeout_s))

    def _send(self, operation: str) -> None:
        client = self._session.api("sagemaker", once=True)
        for parameters in self._plan.of(operation):
            once_visible(partial(getattr(client, operation), **parameters), self._pacing, self._report)
        self._report("endpoint", f"{operation.replace('_', ' ')}: {len(self._plan.of(operation))} sent")

    def _serving(self) -> bool:
        states = {name: describe_component(self._session, name) for name in self._plan.components.values()}
        for name, facts in states.items():
            if facts is None or facts["InferenceComponentStatus"] == "Failed":
                reason = (facts or {}).get("FailureReason", "it no longer exists")
                raise EndpointFailed(
                    f"Inference component {name} failed to start: {reason}",
                    details={"failure_reason": reason},
                )
        waiting = [n for n, f in states.items() if f and f["InferenceComponentStatus"] != "InService"]
        self._report(
            "waiting",
            f"components: {len(states) - len(waiting)} of {len(states)} in service",
            status="Creating",
        )
        return not waiting

    def _leave(self) -> None:
        """Delete everything, components first: SageMaker refuses to delete an endpoint that has any."""
        try:
            self._delete()
        except KeyboardInterrupt:
            now = self._pacing.clock()
            for name in self._plan.schedules:
                limit = lifetime.get(self._session, name)
                if limit is not None:
                    lifetime.bring_forward(self._session, limit, now)
            raise self._billable("interrupted; its lifetime schedules were set to now") from None

    def _delete(self) -> None:
        self._wait(self._components_gone, self._pacing.delete_timeout_s)
        delete(
            [self._plan.endpoint],
            session=self._session,
            progress=self._progress,
            pacing=self._pacing,
            missing_ok=True,
        )
        for name in self._plan.schedules:
            with suppress(NotFound):
                lifetime.remove(self._session, name)

    def _components_gone(self) -> bool:
        left = component_names(self._session, self._plan.endpoint)
        for name in left:
            facts = describe_component(self._session, name)
            if facts is None or facts["InferenceComponentStatus"] == "Deleting":
                continue
            try:
                with aws_errors("DeleteInferenceComponent", self._session.local_url):
                    self._session.client("sagemaker").delete_inference_component(InferenceComponentName=name)
            except NotFound:
                continue
            except PeagleError as error:
                if not is_refused_now(error):
                    raise self._billable(error.message) from error
        self._report("cleanup", f"components remaining: {len(left)}", status="Deleting")
        return not left

    def _wait(self, done: Callable[[], bool], patience: float) -> None:
        deadline = self._pacing.monotonic() + patience
        while not done():
            if self._pacing.monotonic() >= deadline:
                raise self._billable(f"not finished after {patience / 60:.0f} minutes")
            self._pacing.sleep(self._pacing.poll_s)

    def _billable(self, why: str) -> BillableLeft:
        name = self._plan.endpoint
        return BillableLeft(
            f"Endpoint {name} may remain, with its inference components: {why}",
            next_step=f"delete its components in the console, then run peagle-sm delete {name} --yes"
            f"{self._session.command_flags()}; otherwise its lifetime schedules delete it",
            details={"resources": [f"endpoint/{name}"], "region": self._session.region},
        )
