"""What the control plane stores and reports: models, configurations, endpoints, components, and events."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from ..control import errors


@dataclass
class Record:
    """One named resource. `body` is the request that made it, checked and stripped of its tags."""

    name: str
    arn: str
    created: datetime
    modified: datetime
    body: dict[str, Any]
    tags: dict[str, str]
    # Breaks ties between equal creation times, so that lists have one order.
    number: int = 0


@dataclass
class VariantCapacity:
    """Desired and current traffic weight and instance count of a variant."""

    current_weight: float
    desired_weight: float
    current_count: int
    desired_count: int


@dataclass
class EndpointRecord(Record):
    """An endpoint: `body` is its CreateEndpoint request; the active configuration is a separate field.

    Attributes:
        config: body of the configuration in force; it outlives the configuration's own record.
        images: variant -> image of the configuration in force.
        pending: body of the configuration that is being deployed, with `pending_since`.
        failure_reason: shown by DescribeEndpoint while the status is one of failure.
        last_update_failure: why the last update rolled back; AWS does not show it, `status` does.
        placed: variant -> instance type that it got, of several pools.
    """

    status: str = "Creating"
    config: dict[str, Any] = field(default_factory=dict)
    capacities: dict[str, VariantCapacity] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    deployed_at: datetime | None = None
    pending: dict[str, Any] | None = None
    pending_since: datetime | None = None
    deployment_config: dict[str, Any] | None = None
    failure_reason: str | None = None
    last_update_failure: str | None = None
    placed: dict[str, str] = field(default_factory=dict)

    @property
    def hosts_components(self) -> bool:
        """Whether its variants name no model because inference components do."""
        return hosts_components(self.config)


@dataclass
class ComponentRecord(Record):
    """An inference component: `body` is its CreateInferenceComponent request.

    Attributes:
        specification: in force; what Describe repeats.
        activity: AWS's name of what goes on, for example `CREATE_IN_PROGRESS`; empty when nothing does.
            AWS shows it only in refusals.
        last_update_failure: why the last update was undone; AWS does not show it, `status` does.
    """

    endpoint: str = ""
    variant: str = ""
    status: str = "Creating"
    activity: str = ""
    specification: dict[str, Any] = field(default_factory=dict)
    desired_copies: int = 1
    current_copies: int = 0
    image: str = ""
    deployed_at: datetime | None = None
    deployment_config: dict[str, Any] | None = None
    failure_reason: str | None = None
    last_update_failure: str | None = None


def hosts_components(config: Mapping[str, Any]) -> bool:
    """Whether an endpoint with this configuration runs inference components instead of models."""
    return not any("ModelName" in variant for variant in config["ProductionVariants"])


R = TypeVar("R", bound=Record)


class Table(Generic[R]):
    """The resources of one kind. Names are unique and case-insensitive, as in AWS."""

    def __init__(self, kind: str, arn_prefix: str) -> None:
        self.kind = kind
        self._arn_prefix = arn_prefix
        self._rows: dict[str, R] = {}
        self._count = 0

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._rows.values()))

    def arn(self, name: str) -> str:
        """AWS writes the name in lower case inside an ARN."""
        return f"{self._arn_prefix}/{name.lower()}"

    def find(self, name: str) -> R | None:
        """The resource, or None."""
        return self._rows.get(name.lower())

    def get(self, name: str) -> R:
        """The resource.

        Raises:
            ApiError: there is none of that name.
        """
        row = self.find(name)
        if row is None:
            raise errors.not_found(self.kind, self.arn(name))
        return row

    def refuse_taken(self, name: str) -> None:
        """Raises ApiError when the name is in use."""
        if self.find(name) is not None:
            raise errors.already_exists(self.kind, self.arn(name))

    def add(self, row: R) -> R:
        """Adds a new resource and numbers it.

        Raises:
            ApiError: the name is in use.
        """
        self.refuse_taken(row.name)
        self._count += 1
        row.number = self._count
        self._rows[row.name.lower()] = row
        return row

    def remove(self, name: str) -> R:
        """Removes and returns the resource; raises ApiError when there is none."""
        row = self.get(name)
        del self._rows[name.lower()]
        return row


class Tables:
    """Every kind of resource of one account in one region."""

    def __init__(self, account: str, region: str) -> None:
        self.account = account
        self.region = region
        prefix = f"arn:aws:sagemaker:{region}:{account}"
        self.models: Table[Record] = Table("model", f"{prefix}:model")
        self.configs: Table[Record] = Table("endpoint configuration", f"{prefix}:endpoint-config")
        self.endpoints: Table[EndpointRecord] = Table("endpoint", f"{prefix}:endpoint")
        self.components: Table[ComponentRecord] = Table(
            "inference component", f"{prefix}:inference-component"
        )
        # Further kinds that may have tags, by their type in the tagging API.
        self.more: dict[str, Table[Any]] = {}

    def components_of(self, endpoint: str) -> list[ComponentRecord]:
        """The components that an endpoint hosts, in the order in which they were made."""
        return [row for row in self.components if row.endpoint == endpoint]

    def tagged(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """(ARN, resource type of the tagging API, tags) of whatever has tags."""
        kinds: dict[str, Table[Any]] = {
            "sagemaker:model": self.models,
            "sagemaker:endpoint-config": self.configs,
            "sagemaker:endpoint": self.endpoints,
            "sagemaker:inference-component": self.components,
            **self.more,
        }
        for kind, table in kinds.items():
            for row in table:
                if row.tags:
                    yield row.arn, kind, row.tags

    def by_arn(self, arn: str) -> Record | None:
        """Any tagged resource by its ARN; the name's case is ignored."""
        tables: tuple[Table[Any], ...] = (self.models, self.configs, self.endpoints, self.components)
        for table in (*tables, *self.more.values()):
            row: Record
            for row in table:
                if row.arn == arn or row.arn == arn.lower():
                    return row
        return None


Kind = Literal[
    "status",
    "component-status",
    "engine-started",
    "engine-healthy",
    "engine-died",
    "engine-stopped",
    "line",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: `status` for a change of the endpoint's status, `component-status` of a component's; `line` for
            one line of an engine's output.
        endpoint: name of the endpoint.
        status: the endpoint's status after the event, or the component's.
        message: the line, or a sentence for people.
        at: local clock.
        variant: production variant, None when the event is the endpoint's.
        engine_id: tells two engines of one variant apart (an update runs both at once).
        component: inference component, None when the endpoint runs models.
    """

    kind: Kind
    endpoint: str
    status: str
    message: str
    at: datetime
    variant: str | None = None
    engine_id: str | None = None
    component: str | None = None


OnEvent = Callable[[Event], None]
