"""An AWS in memory, faithful where the guard could go wrong.

Pages of 10 unless the caller asks for 100; tags that lag; deletions refused at the wrong status and
taking their time; sparse metrics; a stack that turns its endpoint off later than it says. The test moves the
time. ``faults`` maps an operation's name to exceptions to raise, one a call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from peagle_guard.aws import Component, Job, NoUpdates, Page, Query, Result, Stack, Tagged
from peagle_guard.records import BUSY, Endpoint, Record
from peagle_guard.settings import Settings, parse_time
from peagle_guard.switch import turn
from tests.guard.simulator.fake_services.dynamodb import TableRegister

START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
SETTINGS = Settings(
    table="peagle-guard",
    topic_arn="arn:aws:sns:us-east-1:123456789012:peagle-guard-notices",
    switch_function="peagle-guard-switch",
    lifetime_function="peagle-guard-lifetime",
    scheduler_role_arn="arn:aws:iam::123456789012:role/peagle-scheduler-us-east-1",
    dead_letters_arn="arn:aws:sqs:us-east-1:123456789012:peagle-guard-dead-letters",
)
Hook = Callable[[str], None]


class Refused(Exception):
    """AWS refused the request."""


def arn_of(name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:123456789012:endpoint/{name.lower()}"


def job_arn_of(name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"


def tags_for(name: str, **more: str) -> dict[str, str]:
    """Tags of an endpoint of ours; ``idle_minutes="30"`` becomes ``peagle-sm:idle-minutes``."""
    ours = {"peagle-sm:managed-by": "peagle-sm", "peagle-sm:endpoint": name}
    return ours | {f"peagle-sm:{key.replace('_', '-')}": value for key, value in more.items()}


@dataclass
class FakeEndpoint:
    """One endpoint. ``gone_at``: when a deletion that was begun ends."""

    view: Endpoint
    tags: dict[str, str]
    tagged_at: datetime
    components: list[str] = field(default_factory=list)
    gone_at: datetime | None = None


class FakeRegister(TableRegister):
    """The shipped register over a table in memory, and the test's ways to change it."""

    def write(self, name: str, **changes: Any) -> None:
        """Change a record as the command line does."""
        held = self.records.get(name, Record(name=name))
        self.store(replace(held, **{**changes, "version": held.version + 1}), START)

    def lock_until(self, moment: datetime | None) -> None:
        """Let another sweep hold the lock; None: nobody."""
        lock = {"lock_until": {"S": moment.isoformat()}} if moment else {}
        self.table.items["sweep"] = {"pk": {"S": "sweep"}, **lock}


class FakeAws:
    """AWS as the sweeper and the switch see it; satisfies ``aws.Aws``."""

    def __init__(self, now: datetime = START, *, page: int = 100, tag_lag: timedelta = timedelta()) -> None:
        self.now = now
        self.page = page
        self.tag_lag = tag_lag
        self.deleting_takes = 3 * MINUTE
        self.endpoints: dict[str, FakeEndpoint] = {}
        self.stacks: dict[str, Stack] = {}
        # Training jobs in progress, with their tags.
        self.jobs: dict[str, tuple[Job, dict[str, str]]] = {}
        self.targets: dict[str, str] = {}
        self.schedules: dict[str, datetime] = {}
        self.alarms: set[str] = set()
        # LastModificationDate of those that were written after START.
        self.rewritten: dict[str, datetime] = {}
        self.points: dict[tuple[str, str], dict[datetime, float]] = defaultdict(dict)
        self.series_faults: set[str] = set()
        self.notices: list[tuple[datetime, str, str]] = []
        self.invoked: list[tuple[datetime, str, dict[str, Any]]] = []
        # What really changed something: (time, what, name).
        self.deeds: list[tuple[datetime, str, str]] = []
        # The parameters of the last UpdateStack.
        self.sent: list[Mapping[str, Any]] = []
        self.faults: dict[str, list[Exception]] = defaultdict(list)
        # Called before each operation, with its name: a test's way to interleave.
        self.hook: Hook | None = None
        self._calls: Counter[str] = Counter()
        self._register = FakeRegister(self.called)

    # --- the test's side ------------------------------------------------------------------------------

    def add(self, name: str, *, status: str = "InService", age: timedelta = timedelta(), **tags: str) -> None:
        """Add an endpoint of ours that was created ``age`` ago; a tag ``stack`` makes its stack too."""
        created = self.now - age
        tags = {key: value for key, value in tags.items() if value}
        view = Endpoint(
            name=name,
            arn=arn_of(name),
            created_at=created,
            modified_at=created,
            status=status,
            config_name=f"{name}-1",
            variants=("AllTraffic",),
            instances=1,
        )
        self.endpoints[name] = FakeEndpoint(view, tags_for(name, **tags), created)
        if "stack" in tags:
            parameters = {"EndpointState": "on", "Image": "some"}
            self.stacks[tags["stack"]] = Stack(tags["stack"], "CREATE_COMPLETE", parameters)

    def change(self, name: str, **changes: Any) -> None:
        """Change what an endpoint's description says; its LastModifiedTime becomes now."""
        held = self.endpoints[name]
        held.view = replace(held.view, **{"modified_at": self.now, **changes})

    def idle_points(self, name: str, start: datetime, end: datetime, *, zeros: bool = True) -> None:
        """Write a quiet endpoint's metrics for the minutes from start to end (not inside)."""
        self._fill(name, start, end, "CPUUtilization", 3.0)
        if zeros:
            self._fill(name, start, end, "Invocations", 0.0)
            self._fill(name, start, end, "ConcurrentRequestsPerModel", 0.0)

    def traffic_points(self, name: str, start: datetime, end: datetime) -> None:
        """Write a busy endpoint's metrics for the minutes from start to end (not inside)."""
        for metric in ("CPUUtilization", "Invocations", "ConcurrentRequestsPerModel"):
            self._fill(name, start, end, metric, 1.0)

    def _fill(self, name: str, start: datetime, end: datetime, metric: str, value: float) -> None:
        at = start.replace(second=0, microsecond=0)
        while at < end:
            self.points[(name, metric)][at] = value
            at += MINUTE

    def called(self, operation: str) -> None:
        """Count a call, let a test in between, and raise a planned fault."""
        self._calls[operation] += 1
        if self.hook is not None:
            self.hook(operation)
        self._settle()
        if self.faults[operation]:
            raise self.faults[operation].pop(0)

    def _settle(self) -> None:
        for name, held in list(self.endpoints.items()):
            if held.gone_at is not None and held.gone_at <= self.now:
                del self.endpoints[name]
        for name, stack in self.stacks.items():
            if stack.status == "UPDATE_IN_PROGRESS" and name.removeprefix("Peagle-") not in self.endpoints:
                self.stacks[name] = replace(stack, status="UPDATE_COMPLETE")

    # --- the sweeper's side ---------------------------------------------------------------------------

    @property
    def register(self) -> FakeRegister:
        return self._register

    @property
    def calls(self) -> Counter[str]:
        return self._calls

    def time(self) -> datetime:
        self.called("ListEndpoints")
        return self.now

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        self.called("ListEndpoints")
        rows = [
            replace(held.view, config_name="", variants=(), instances=None)
            for _, held in sorted(self.endpoints.items())
        ]
        return self._paged(rows, token)

    def describe_endpoint(self, name: str) -> Endpoint | None:
        self.called("DescribeEndpoint")
        held = self.endpoints.get(name)
        return None if held is None else held.view

    def list_components(self, token: str | None) -> Page[Component]:
        self.called("ListInferenceComponents")
        rows = [
            Component(component, name, "AllTraffic")
            for name, held in sorted(self.endpoints.items())
            for component in held.components
        ]
        return self._paged(rows, token)

    def tagged_endpoints(self, token: str | None) -> Page[Tagged]:
        self.called("GetResources")
        rows = [
            Tagged(held.view.arn, held.tags)
            for _, held in sorted(self.endpoints.items())
            if held.tags.get("peagle-sm:managed-by") == "peagle-sm"
            and held.tagged_at + self.tag_lag <= self.now
        ]
        return self._paged(rows, token)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        self.called("ListTags")
        for held in self.endpoints.values():
            if held.view.arn == arn:
                return held.tags
        if ":training-job/" in arn:
            return self.jobs[arn.rpartition("/")[2]][1]
        raise Refused(f"ValidationException: Could not find {arn}")

    def running_jobs(self, token: str | None) -> Page[tuple[str, str]]:
        self.called("ListTrainingJobs")
        return self._paged([(name, job_arn_of(name)) for name in sorted(self.jobs)], token)

    def describe_job(self, name: str) -> Job:
        self.called("DescribeTrainingJob")
        return self.jobs[name][0]

    def stop_job(self, name: str) -> None:
        self.called("StopTrainingJob")
        del self.jobs[name]
        self.deeds.append((self.now, "stop-training", name))

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        self.called("GetMetricData")
        if len(queries) > 500:
            raise Refused("ValidationError: at most 500 queries")
        return Page(tuple(self._result(query, start, end) for query in queries))

    def _result(self, query: Query, start: datetime, end: datetime) -> Result:
        dimensions = dict(query.dimensions)
        # EndpointName alone is always empty, as on AWS.
        name = dimensions.get("InferenceComponentName")
        if name is None and "VariantName" in dimensions:
            name = dimensions["EndpointName"]
            if dimensions["VariantName"] != "AllTraffic":
                name = f"{name}/{dimensions['VariantName']}"
        if name is None and query.metric == "ApproximateBacklogSize":
            name = dimensions["EndpointName"]
        points = self.points.get((name or "", query.metric), {})
        inside = {at: value for at, value in points.items() if start <= at < min(end, self.now)}
        return Result(query.id, inside, whole=name not in self.series_faults)

    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        self.called("Invoke")
        self.invoked.append((self.now, function, dict(event)))
        if function == SETTINGS.switch_function:
            return turn(self, event)
        return self._wake(event)

    def _wake(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        name = str(event["endpoint"])
        if name in self.endpoints:
            return {"state": "done", "detail": "there already"}
        record = self.register.records[name]
        self.schedules[name] = parse_time(str(event["time"]))
        self.add(name, status="Creating")
        self.endpoints[name].tags = dict(record.tags)
        self.deeds.append((self.now, "create", name))
        return {"state": "done", "detail": "created"}

    def publish(self, subject: str, text: str) -> None:
        self.called("Publish")
        self.notices.append((self.now, subject, text))

    # --- the switch's side ----------------------------------------------------------------------------

    def describe_stack(self, name: str) -> Stack | None:
        self.called("DescribeStacks")
        return self.stacks.get(name)

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        self.called("UpdateStack")
        stack = self.stacks[name]
        if stack.status.endswith("_IN_PROGRESS"):
            raise Refused(f"ValidationError: Stack {name} is in {stack.status} state and can not be updated")
        self.sent = list(parameters)
        passed = {row["ParameterKey"]: row for row in parameters}
        if set(passed) != set(stack.parameters):
            raise AssertionError("a parameter that is left out falls back to its default")
        state = str(passed["EndpointState"]["ParameterValue"])
        if state == stack.parameters["EndpointState"]:
            raise NoUpdates
        self.stacks[name] = replace(
            stack, status="UPDATE_IN_PROGRESS", parameters={**stack.parameters, "EndpointState": state}
        )
        self.deeds.append((self.now, f"stack-{state}", name))
        endpoint = name.removeprefix("Peagle-")
        if state == "on":
            self.stacks[name] = replace(self.stacks[name], status="UPDATE_COMPLETE")
            record = self.register.records[endpoint]
            self.add(endpoint, status="Creating")
            self.endpoints[endpoint].tags = dict(record.tags)
        elif endpoint in self.endpoints:
            self._delete(endpoint)

    def components(self, endpoint: str) -> Sequence[str]:
        self.called("ListInferenceComponents")
        return list(self.endpoints[endpoint].components)

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        self.called("DescribeScalableTargets")
        return [(each, self.targets[each]) for each in resource_ids if each in self.targets]

    def deregister(self, resource_id: str, dimension: str) -> None:
        self.called("DeregisterScalableTarget")
        del self.targets[resource_id]
        self.deeds.append((self.now, "deregister", resource_id))

    def delete_component(self, name: str) -> None:
        self.called("DeleteInferenceComponent")
        for held in self.endpoints.values():
            if name in held.components:
                held.components.remove(name)
        self.deeds.append((self.now, "delete-component", name))

    def delete_endpoint(self, name: str) -> None:
        self.called("DeleteEndpoint")
        self._delete(name)
        self.deeds.append((self.now, "delete", name))

    def _delete(self, name: str) -> None:
        held = self.endpoints[name]
        if held.view.status in BUSY or held.view.status == "Deleting":
            raise Refused(f"ValidationException: Cannot update in-progress endpoint {name!r}")
        if held.components:
            raise Refused(f"ValidationException: endpoint {name!r} still hosts inference components")
        held.view = replace(held.view, status="Deleting", modified_at=self.now)
        held.gone_at = self.now + self.deleting_takes

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        self.called("GetSchedule")
        start = self.schedules.get(name)
        return None if start is None else (start, self.rewritten.get(name, START))

    def delete_schedule(self, name: str) -> None:
        self.called("DeleteSchedule")
        self.schedules.pop(name, None)

    def delete_alarms(self, names: Sequence[str]) -> None:
        self.called("DeleteAlarms")
        self.alarms.difference_update(names)

    def _paged(self, rows: Sequence[Any], token: str | None) -> Page[Any]:
        first = int(token or 0)
        more = first + self.page < len(rows)
        return Page(tuple(rows[first : first + self.page]), str(first + self.page) if more else None)
