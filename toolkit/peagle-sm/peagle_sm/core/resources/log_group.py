"""Log group of an endpoint's engine, or of its component's.

`deploy` creates it, because the guard's execution role must not: otherwise a log line that arrives after a
deletion would create the group again, and a later stack of that name would fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.resources.resource import Refer, Request, Resource

KEPT_DAYS = 30


def log_group_name(endpoint: str, component: str | None = None) -> str:
    """Return the log group to which SageMaker writes the lines of an endpoint, or of its component."""
    if component is not None:
        return f"/aws/sagemaker/InferenceComponents/{component}"
    return f"/aws/sagemaker/Endpoints/{endpoint}"


class LogGroup(Resource):
    """The log group; it is kept after the endpoint."""

    kind, words = "log-group", "log group"
    service, noun, name_field = "logs", "log_group", "logGroupName"
    rests = True
    cloudformation = "AWS::Logs::LogGroup"
    template_id = "Logs"

    def create(self) -> tuple[Request, ...]:
        """Return CreateLogGroup and PutRetentionPolicy."""
        parameters = {"logGroupName": self.name, "retentionInDays": KEPT_DAYS}
        return (
            Request(self.service, "create_log_group", {"logGroupName": self.name}),
            Request(self.service, "put_retention_policy", parameters),
        )

    def describe(self) -> Request:
        """Return DescribeLogGroups, which takes a prefix."""
        return Request(self.service, "describe_log_groups", {"logGroupNamePrefix": self.name})

    def facts(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the group with exactly this name."""
        return next((row for row in answer["logGroups"] if row["logGroupName"] == self.name), None)

    def properties(self, refer: Refer) -> dict[str, Any]:
        """Return the properties: CloudFormation writes them with capital letters."""
        return {"LogGroupName": self.name, "RetentionInDays": KEPT_DAYS}
