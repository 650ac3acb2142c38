"""Beside SageMaker: the log groups, the price list and the identity of the AWS in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.service.fake_errors import Params, client_error
from tests.service.fake_guard import Pages

if TYPE_CHECKING:
    from tests.service.fakes import FakeAws


class CloudWatch:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def delete_alarms(self, AlarmNames: list[str]) -> Params:
        def act() -> Params:
            self.aws.alarms.difference_update(AlarmNames)
            return {}

        return self.aws.call("DeleteAlarms", act)


class Pricing:
    """The price list, which most callers may not read."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def get_paginator(self, operation: str) -> Pages:
        def refuse(params: Params) -> Params:
            raise client_error("GetProducts", "AccessDeniedException", "not authorized: pricing:GetProducts")

        return Pages(lambda params: self.aws.call("GetProducts", lambda: refuse(params)))


class Sts:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def get_caller_identity(self) -> Params:
        return self.aws.call("GetCallerIdentity", lambda: {"Account": "123456789012"})


class Logs:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def describe_log_streams(self, **params: Any) -> Params:
        self._check_group(params["logGroupName"], "DescribeLogStreams")
        return self.aws.call(
            "DescribeLogStreams", lambda: {"logStreams": [{"logStreamName": "AllTraffic/i-1"}]}
        )

    def get_log_events(self, **params: Any) -> Params:
        events = self._events()
        return self.aws.call("GetLogEvents", lambda: {"events": events[-params["limit"] :]})

    def create_log_group(self, logGroupName: str) -> Params:
        def act() -> Params:
            if logGroupName in self.aws.log_groups:
                message = "The specified log group already exists"
                raise client_error("CreateLogGroup", "ResourceAlreadyExistsException", message)
            self.aws.log_groups.add(logGroupName)
            return {}

        return self.aws.call("CreateLogGroup", act)

    def put_retention_policy(self, logGroupName: str, retentionInDays: int) -> Params:
        assert logGroupName in self.aws.log_groups
        return self.aws.call("PutRetentionPolicy", dict)

    def describe_log_groups(self, **params: Any) -> Params:
        return self.aws.call("DescribeLogGroups", lambda: self._groups(params))

    def delete_log_group(self, logGroupName: str) -> Params:
        def act() -> Params:
            if logGroupName not in self.aws.log_groups:
                message = "The specified log group does not exist."
                raise client_error("DeleteLogGroup", "ResourceNotFoundException", message)
            self.aws.log_groups.remove(logGroupName)
            return {}

        return self.aws.call("DeleteLogGroup", act)

    def get_paginator(self, operation: str) -> Pages:
        assert operation == "filter_log_events"
        return Pages(lambda params: self.aws.call("FilterLogEvents", lambda: self._filtered(params)))

    def _groups(self, params: Params) -> Params:
        rows = [name for name in sorted(self.aws.log_groups) if name.startswith(params["logGroupNamePrefix"])]
        return {"logGroups": [{"logGroupName": name} for name in rows]}

    def _filtered(self, params: Params) -> Params:
        self._check_group(params["logGroupName"], "FilterLogEvents")
        rows = [one for one in self._events() if one["timestamp"] >= params["startTime"]]
        # No promise of order between streams.
        return {"events": [{**one, "logStreamName": "AllTraffic/i-1"} for one in reversed(rows)]}

    def _check_group(self, group: str, operation: str) -> None:
        """The lines are those of an endpoint; no component has a group."""
        if "/InferenceComponents/" in group:
            raise client_error(
                operation, "ResourceNotFoundException", "The specified log group does not exist."
            )

    def _events(self) -> list[Params]:
        return [
            {"timestamp": i // 2 * 2, "message": line, "eventId": f"e{i}"}
            for i, line in enumerate(self.aws.log_lines)
        ]
