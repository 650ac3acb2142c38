"""The guard's own view of AWS (``peagle_guard.aws``), answered by a simulated account with faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from peagle_guard.aws import (
    Component,
    Job,
    NoUpdates,
    Page,
    Query,
    Result,
    Stack,
    Tagged,
    Unanswered,
)
from peagle_guard.boto_aws import FunctionFailed, endpoint_of
from peagle_guard.records import Endpoint
from tests.guard.simulator.fake_services.account import ACCOUNT, MANAGED_BY, REGION, Account
from tests.guard.simulator.fake_services.cloudwatch import Points
from tests.guard.simulator.fake_services.dynamodb import TableRegister
from tests.guard.simulator.fake_services.errors import (
    AwsFault,
    NothingToUpdate,
)
from tests.guard.simulator.fake_services.sagemaker import Life

PAGE = 100
MOST_QUERIES = 500
VARIANT = "AllTraffic"
INVOKE_TIMEOUT_S = 60
"""After this the guard's client gives up an Invoke (peagle_guard.boto_aws)."""

DEFAULT_STATE, DEFAULT_IMAGE = "on", "default"
"""What the parameters EndpointState and Image fall back to where an update leaves them out."""

WAKE_AGAIN_S = 240
"""A wake that is delivered twice comes again within this."""

_moments: dict[int, datetime] = {}


def moment(seconds: int) -> datetime:
    """Return seconds since 1970 as an aware datetime; remembered, since a world asks for few, often."""
    result = _moments.get(seconds)
    if result is None:
        if len(_moments) > 20_000:
            _moments.clear()
        result = _moments[seconds] = datetime.fromtimestamp(seconds, UTC)
    return result


def seconds(at: datetime) -> int:
    """Return a datetime as whole seconds since 1970."""
    return int(at.timestamp())


def job_arn(name: str) -> str:
    """Return the ARN of a training job."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"


@dataclass(slots=True)
class FakeAws:
    """One method per call; each is counted, and each may fail."""

    account: Account
    register: TableRegister
    functions: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]
    notices: list[tuple[int, str, str]] = field(default_factory=list)
    invoked: list[tuple[int, str, Mapping[str, Any]]] = field(default_factory=list)
    """(when, function, event) of each Invoke."""

    @property
    def calls(self) -> Mapping[str, int]:
        """How often each operation was called, since the world began."""
        return self.account.calls

    def time(self) -> datetime:
        """The Date header of an answer: AWS's own clock, whatever the guard's shows."""
        return moment(self.account.call("ListEndpoints"))

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        """ListEndpoints, 100 a page."""
        now = self.account.call("ListEndpoints")
        return _page([_views(life, now)[0] for life in self.account.sagemaker.live.values()], token)

    def describe_endpoint(self, name: str) -> Endpoint | None:
        now = self.account.call("DescribeEndpoint")
        life = self.account.sagemaker.live.get(name)
        return None if life is None else described(life, now)

    def list_components(self, token: str | None) -> Page[Component]:
        """ListInferenceComponents of all endpoints."""
        self.account.call("ListInferenceComponents")
        lives = self.account.sagemaker.live.values()
        rows = [Component(name, life.plan.name, VARIANT) for life in lives for name in life.components]
        return _page(rows, token)

    def tagged_endpoints(self, token: str | None) -> Page[Tagged]:
        """GetResources: as things were some time ago, endpoints that are gone included."""
        then = self.account.call("GetResources") - self.account.world.tag_lag_s
        by_name: dict[str, Tagged] = {}
        for life in self.account.sagemaker.lives:
            if life.created_at <= then and (life.gone_at is None or life.gone_at > then):
                by_name.pop(life.arn, None)
                if life.tags.get(MANAGED_BY):
                    by_name[life.arn] = Tagged(life.arn, life.tags)
        return _page(list(by_name.values()), token)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags: the truth."""
        self.account.call("ListTags")
        for life in self.account.sagemaker.live.values():
            if life.arn == arn:
                return life.tags
        if arn.rpartition("/")[2] in self.account.jobs:
            return self.account.jobs[arn.rpartition("/")[2]][1]
        raise AwsFault(f"Could not find {arn}", "ValidationException")

    def running_jobs(self, token: str | None) -> Page[tuple[str, str]]:
        """ListTrainingJobs: those in progress."""
        self.account.call("ListTrainingJobs")
        return _page([(name, job_arn(name)) for name in sorted(self.account.jobs)], token)

    def describe_job(self, name: str) -> Job:
        self.account.call("DescribeTrainingJob")
        if name not in self.account.jobs:
            raise AwsFault(f"Requested resource not found: {name}")
        return self.account.jobs[name][0]

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        """GetMetricData by minute."""
        now = self.account.call("GetMetricData")
        if self.account.metrics.failing(now):
            raise AwsFault("GetMetricData: Internal failure")
        if len(queries) > MOST_QUERIES:
            raise AwsFault(
                f"The collection MetricDataQueries must not have a size greater than {MOST_QUERIES}."
            )
        begin, stop = seconds(start), seconds(end)
        return Page(tuple(self._result(query, begin, stop, now) for query in queries))

    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Invoke one of the guard's functions."""
        now = self.account.call("Invoke")
        self.invoked.append((now, function, event))
        if not self.account.functions_run(now):
            raise AwsFault(f"{function}: Service exception")
        if self._hangs(event, now):
            self.account.spend(INVOKE_TIMEOUT_S)
            raise Unanswered(f"{function}: Read timeout")
        if event.get("action") == "wake" and self.account.world.lambdas.redelivered:
            again = now + self.account.chance.randint(1, WAKE_AGAIN_S)
            self.account.events.at(again, lambda _: self._again(function, event))
        try:
            return self.functions[function](event)
        except Exception as error:
            raise FunctionFailed(f"{function}: {type(error).__name__}: {error}") from error

    def _hangs(self, event: Mapping[str, Any], now: int) -> bool:
        target = str(event.get("endpoint") or event.get("stack") or "").removeprefix("Peagle-")
        return any(
            each.endpoint == target and each.begin <= now < each.end for each in self.account.world.hangs
        )

    def _again(self, function: str, event: Mapping[str, Any]) -> None:
        """The same event once more; who sent it hears nothing of it."""
        with suppress(ClientError):
            self.functions[function](event)

    def publish(self, subject: str, text: str) -> None:
        """Publish a notice."""
        now = self.account.call("Publish")
        self.notices.append((now, subject, text))

    @property
    def now(self) -> datetime:
        """The present moment by the Lambda's clock."""
        return moment(self.account.events.now + self.account.world.lambdas.clock_s)

    def describe_stack(self, name: str) -> Stack | None:
        now = self.account.call("DescribeStacks")
        stack = self.account.cloudformation.stacks.get(name)
        if stack is None:
            return None
        state = {"EndpointState": stack.state} if stack.state else {}
        parameters = {"Image": stack.image} | state
        return Stack(name, stack.status_at(now), parameters)

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template; a parameter that is left out falls back to its default."""
        now = self.account.call("UpdateStack")
        given = {each["ParameterKey"]: each for each in parameters}
        row = given.get("EndpointState", {"ParameterValue": DEFAULT_STATE})
        try:
            stack = self.account.cloudformation.update(name, row.get("ParameterValue"), now)
        except NothingToUpdate as error:
            raise NoUpdates from error
        stack.by = self.account.actor
        stack.image = stack.image if "Image" in given else DEFAULT_IMAGE
        self.account.deeds.append((now, f"stack-{stack.state}", name))

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint."""
        self.account.call("ListInferenceComponents")
        life = self.account.sagemaker.live.get(endpoint)
        return [] if life is None else list(life.components)

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""
        self.account.call("DescribeScalableTargets")
        known = self.account.sagemaker.targets
        return [(each, known[each]) for each in resource_ids if each in known]

    def deregister(self, resource_id: str, dimension: str) -> None:
        now = self.account.call("DeregisterScalableTarget")
        self.account.sagemaker.deregister(resource_id, now)
        self.account.deeds.append((now, "deregister", resource_id))

    def delete_component(self, name: str) -> None:
        now = self.account.call("DeleteInferenceComponent")
        self.account.sagemaker.delete_component(name, now, self.account.actor)
        self.account.deeds.append((now, "delete-component", name))

    def stop_job(self, name: str) -> None:
        now = self.account.call("StopTrainingJob")
        if self.account.jobs.pop(name, None) is not None:  # one that has ended is fine
            self.account.deeds.append((now, "stop-training", name))

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint, under the tag condition of the switch's role."""
        now = self.account.call("DeleteEndpoint")
        self.account.may_delete(name)
        self.account.sagemaker.delete(name, now, self.account.actor)
        self.account.deeds.append((now, "delete", name))

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule."""
        self.account.call("GetSchedule")
        schedule = self.account.scheduler.armed.get(name)
        return None if schedule is None else (moment(schedule.start), moment(schedule.armed_at))

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""
        self.account.call("DeleteSchedule")
        self.account.scheduler.remove(name)

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""
        self.account.call("DeleteAlarms")
        self.account.alarms.difference_update(names)

    def _result(self, query: Query, begin: int, stop: int, now: int) -> Result:
        points = self._points(query, begin, stop, now)
        values = {_moments.get(minute) or moment(minute): value for minute, value in points}
        return Result(query.id, values, whole=not self.account.metrics.partial(now))

    def _points(self, query: Query, begin: int, stop: int, now: int) -> Points:
        metrics, dimensions = self.account.metrics, dict(query.dimensions)
        component = dimensions.get("InferenceComponentName")
        if component is not None:
            name, lane = component.rpartition("-copy-")[0], component
        elif "VariantName" in dimensions:
            name, lane = dimensions["EndpointName"], dimensions["VariantName"]
        elif query.metric == "ApproximateBacklogSize":
            return metrics.backlog(dimensions["EndpointName"], begin, stop, now)
        else:
            return []
        if query.metric.startswith("GPUUtilization"):
            return metrics.gpu(name, begin, stop, now)
        if "Utilization" in query.metric:
            return metrics.utilisation(name, begin, stop, now, samples=query.stat == "SampleCount")
        if query.metric == "Invocations":
            return metrics.invocations(name, lane, begin, stop, now)
        if query.metric in ("ConcurrentRequestsPerModel", "ConcurrentRequestsPerCopy"):
            return metrics.concurrency(name, lane, begin, stop, now)
        return []


def _page(items: list[Any], token: str | None) -> Page[Any]:
    first = int(token or 0)
    more = first + PAGE < len(items)
    return Page(tuple(items[first : first + PAGE]), str(first + PAGE) if more else None)


def _views(life: Life, now: int) -> tuple[Endpoint, Endpoint]:
    """An endpoint as ListEndpoints and DescribeEndpoint show it, read by the guard's own code."""
    key = (life.status(now), life.modified_at(now))
    result: tuple[Endpoint, Endpoint] | None = life.views.get(key)
    if result is None:
        result = life.views[key] = _read(life, now, *key)
    return result


def _read(life: Life, now: int, status: str, modified_at: int) -> tuple[Endpoint, Endpoint]:
    plan = life.plan
    row: dict[str, Any] = {
        "EndpointName": plan.name,
        "EndpointArn": life.arn,
        "CreationTime": moment(life.created_at),
        "LastModifiedTime": moment(modified_at),
        "EndpointStatus": status,
    }
    variants = (VARIANT,) if plan.components else tuple(name for name, _ in plan.traffic)
    count = max([1, *(count for begin, count in plan.instances if begin <= now)])
    described = row | {
        "EndpointConfigName": life.config_name,
        "ProductionVariants": [{"VariantName": name, "CurrentInstanceCount": count} for name in variants],
    }
    if plan.async_config:
        described["AsyncInferenceConfig"] = {"OutputConfig": {"S3OutputPath": "s3://answers/"}}
    return endpoint_of(row), endpoint_of(described)


def described(life: Life, now: int) -> Endpoint:
    """Return an endpoint as DescribeEndpoint shows it."""
    return _views(life, now)[1]
