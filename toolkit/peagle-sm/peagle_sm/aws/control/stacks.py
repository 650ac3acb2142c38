"""CloudFormation, one thin function per call; and resources by tag.

`describe` returns None if the stack does not exist. The Resource Groups Tagging API lists resources of all
types in one call per page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault

GONE = "DELETE_COMPLETE"


@dataclass(frozen=True)
class StackFacts:
    """Result of DescribeStacks; ``reason`` is None if not reported."""

    name: str
    stack_id: str
    status: str
    reason: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    updated_at: datetime | None = None

    @property
    def moving(self) -> bool:
        """Return whether an operation on it, or its cleanup, is in progress."""
        return self.status.endswith("_IN_PROGRESS")


@dataclass(frozen=True)
class StackEvent:
    """One event of a stack."""

    event_id: str
    at: datetime
    logical_id: str
    resource_type: str
    status: str
    reason: str | None = None


def describe(session: Session, name: str) -> StackFacts | None:
    """Return a stack's facts by name, or by id also after its deletion, or None."""
    answer = session.api("cloudformation").find("describe_stacks", StackName=name)
    if answer is None or not answer["Stacks"]:
        return None
    row = answer["Stacks"][0]
    return StackFacts(
        name=row["StackName"],
        stack_id=row["StackId"],
        status=row["StackStatus"],
        reason=row.get("StackStatusReason"),
        parameters={
            parameter["ParameterKey"]: parameter.get("ParameterValue", "")
            for parameter in row.get("Parameters", [])
        },
        outputs={output["OutputKey"]: output["OutputValue"] for output in row.get("Outputs", [])},
        updated_at=row.get("LastUpdatedTime") or row.get("CreationTime"),
    )


def stack_status(session: Session, name: str) -> str | None:
    """Return a stack's status; None if it does not exist."""
    stack = describe(session, name)
    return None if stack is None or stack.status == GONE else stack.status


def create(session: Session, parameters: Mapping[str, Any]) -> str:
    """Send CreateStack once, and return the stack's id."""
    return str(session.api("cloudformation", once=True).create_stack(**parameters)["StackId"])


def update(session: Session, parameters: Mapping[str, Any]) -> bool:
    """Send UpdateStack once; return False if there is nothing to change."""
    try:
        session.api("cloudformation", once=True).update_stack(**parameters)
    except ServiceFault as error:
        if "no updates are to be performed" in error.message.lower():
            return False
        raise
    return True


def delete(session: Session, name: str) -> None:
    """Send DeleteStack; its answer proves nothing: poll by id until it is gone."""
    session.api("cloudformation").delete_stack(StackName=name)


def events(session: Session, stack_id: str) -> Iterator[StackEvent]:
    """Yield a stack's events, newest first; pages are read on demand."""
    for row in session.api("cloudformation").rows("describe_stack_events", "StackEvents", StackName=stack_id):
        yield StackEvent(
            event_id=row["EventId"],
            at=row["Timestamp"],
            logical_id=row.get("LogicalResourceId", ""),
            resource_type=row.get("ResourceType", ""),
            status=row.get("ResourceStatus", ""),
            reason=row.get("ResourceStatusReason"),
        )


def importers(session: Session, exports: Sequence[str]) -> list[str]:
    """Return the stacks that import any of the exports and so block their deletion."""
    stacks: set[str] = set()
    for export in exports:
        try:
            stacks.update(session.api("cloudformation").rows("list_imports", "Imports", ExportName=export))
        except NotFound:
            continue
        except ServiceFault as error:
            if "not imported" not in error.message.lower():  # AWS's message if no stack imports it
                raise
    return sorted(stacks)


KINDS = ("endpoint", "endpoint-config", "model")
_PAGE = 100


def tagged_resources(session: Session, wanted: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the tags, by ARN, of endpoints, configs and models with ``wanted`` tags.

    The answer lags behind SageMaker by minutes: it may lack a new resource or show a deleted one.
    """
    query = {
        "ResourceTypeFilters": [f"sagemaker:{kind}" for kind in KINDS],
        "TagFilters": [{"Key": key, "Values": [value]} for key, value in wanted.items()],
        "ResourcesPerPage": _PAGE,
    }
    rows = session.api("resourcegroupstaggingapi").rows("get_resources", "ResourceTagMappingList", **query)
    return {row["ResourceARN"]: {tag["Key"]: tag["Value"] for tag in row["Tags"]} for row in rows}
