"""What a guard leaves in the AWS in memory: its schedules, its stack, its table, its switch."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.service.fake_errors import Params, client_error

if TYPE_CHECKING:
    from tests.service.fakes import FakeAws


class Pages:
    def __init__(self, rows: Callable[[Params], Params]) -> None:
        self._rows = rows

    def paginate(self, **params: Any) -> Iterator[Params]:
        yield self._rows(params)


class ManyPages:
    """Rows of one List operation; each page is a call of its own."""

    def __init__(
        self, aws: FakeAws, operation: str, key: str, rows: Callable[[Params], list[Params]]
    ) -> None:
        self._aws, self._operation, self._key, self._rows = aws, operation, key, rows

    def paginate(self, **params: Any) -> Iterator[Params]:
        size = params.get("MaxResults") or params.get("ResourcesPerPage") or 100
        rows, at = self._rows(params), 0
        while True:
            page = rows[at : at + size]
            yield self._aws.call(self._operation, partial(dict, {self._key: page}))
            at += size
            if at >= len(rows):
                return


class Tagging:
    """The tagging API: it lags, so it lacks `FakeAws.untagged` and shows `stale_tags`."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def get_paginator(self, operation: str) -> ManyPages:
        assert operation == "get_resources"
        return ManyPages(self.aws, "GetResources", "ResourceTagMappingList", self._rows)

    def _rows(self, params: Params) -> list[Params]:
        kinds = {kind.partition(":")[2] for kind in params["ResourceTypeFilters"]}
        live = {arn: tags for arn, tags in self.aws.tagged() if arn not in self.aws.untagged}
        shown = {**live, **self.aws.stale_tags}
        return [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in shown.items()
            if arn.rpartition(":")[2].partition("/")[0] in kinds
            and all(tags.get(each["Key"]) in each["Values"] for each in params["TagFilters"])
        ]


class Scaling:
    """Application Auto Scaling without any target."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def deregister_scalable_target(self, **params: Any) -> Params:
        def act() -> Params:
            code = "ObjectNotFoundException"
            raise client_error("DeregisterScalableTarget", code, f"No target {params['ResourceId']}")

        return self.aws.call("DeregisterScalableTarget", act)


class Scheduler:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def create_schedule(self, **params: Any) -> Params:
        def act() -> Params:
            if params["Name"] in self.aws.schedules:
                message = f"Schedule {params['Name']} already exists."
                raise client_error("CreateSchedule", "ConflictException", message, 409)
            self._refuse_old("CreateSchedule", params)
            self.aws.schedules[params["Name"]] = params
            return {}

        return self.aws.call("CreateSchedule", act)

    def update_schedule(self, **params: Any) -> Params:
        def act() -> Params:
            self._get("UpdateSchedule", params["Name"])
            self._refuse_old("UpdateSchedule", params)
            self.aws.schedules[params["Name"]] = params
            return {}

        return self.aws.call("UpdateSchedule", act)

    def _refuse_old(self, operation: str, params: Params) -> None:
        start = params.get("StartDate")
        if start is not None and start < self.aws.clock.now() - timedelta(minutes=5):
            message = "The StartDate you specify cannot be earlier than 5 minutes ago."
            raise client_error(operation, "ValidationException", message)

    def get_schedule(self, Name: str) -> Params:
        return self.aws.call("GetSchedule", lambda: dict(self._get("GetSchedule", Name)))

    def delete_schedule(self, Name: str) -> Params:
        def act() -> Params:
            self._get("DeleteSchedule", Name)
            del self.aws.schedules[Name]
            return {}

        return self.aws.call("DeleteSchedule", act)

    def get_paginator(self, operation: str) -> Pages:
        assert operation == "list_schedules"
        return Pages(
            lambda params: self.aws.call(
                "ListSchedules",
                lambda: {
                    "Schedules": [
                        {"Name": name} for name in self.aws.schedules if name.startswith(params["NamePrefix"])
                    ]
                },
            )
        )

    def _get(self, operation: str, name: str) -> Params:
        if name not in self.aws.schedules:
            raise client_error(
                operation, "ResourceNotFoundException", f"Schedule {name} does not exist.", 404
            )
        return self.aws.schedules[name]


class CloudFormation:
    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def describe_stacks(self, StackName: str) -> Params:
        def act() -> Params:
            if StackName not in self.aws.stacks:
                message = f"Stack with id {StackName} does not exist"
                raise client_error("DescribeStacks", "ValidationError", message)
            row = {"StackName": StackName, "StackId": "id", "StackStatus": self.aws.stacks[StackName]}
            return {"Stacks": [row]}

        return self.aws.call("DescribeStacks", act)


class DynamoDb:
    """One table, `peagle-guard`; None in `FakeAws.register` means that there is none."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def _items(self, operation: str) -> dict[str, Params]:
        if self.aws.register is None:
            raise client_error(operation, "ResourceNotFoundException", "Requested resource not found")
        return self.aws.register

    def get_item(self, **params: Any) -> Params:
        def act() -> Params:
            item = self._items("GetItem").get(params["Key"]["pk"]["S"])
            return {**self.aws.dated(), **({} if item is None else {"Item": item})}

        return self.aws.call("GetItem", act)

    def update_item(self, **params: Any) -> Params:
        def act() -> Params:
            pk = params["Key"]["pk"]["S"]
            item = dict(self._items("UpdateItem").get(pk, {}))
            values = params["ExpressionAttributeValues"]
            if item.get("version") != values.get(":seen"):
                raise client_error("UpdateItem", "ConditionalCheckFailedException", "The conditional failed")
            sets, _, removes = params["UpdateExpression"].partition(" REMOVE ")
            for part in sets.removeprefix("SET ").split(", "):
                name, _, value = part.partition(" = ")
                item[name.removeprefix("#")] = values[value]
            for name in filter(None, removes.split(", ")):
                item.pop(name.removeprefix("#"), None)
            self._items("UpdateItem")[pk] = {**item, "pk": {"S": pk}}
            return {}

        return self.aws.call("UpdateItem", act)

    def delete_item(self, **params: Any) -> Params:
        def act() -> Params:
            self._items("DeleteItem").pop(params["Key"]["pk"]["S"], None)
            return {}

        return self.aws.call("DeleteItem", act)

    def get_paginator(self, operation: str) -> Pages:
        assert operation == "scan"
        return Pages(
            lambda params: self.aws.call("Scan", lambda: {"Items": list(self._items("Scan").values())})
        )


class Lambda:
    """The guard's switch, as `FakeAws.switch` answers; None means that no guard is installed."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def invoke(self, **params: Any) -> Params:
        def act() -> Params:
            if self.aws.switch is None or params["FunctionName"] != "peagle-guard-switch":
                raise client_error("Invoke", "ResourceNotFoundException", "Function not found", 404)
            answer = self.aws.switch(json.loads(params["Payload"]))
            return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}

        return self.aws.call("Invoke", act)
