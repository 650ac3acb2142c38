"""A stack's context at a real local server, for handlers alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sagemaker_local.cloudformation.resources.base import Created, ResourceContext
from sagemaker_local.cloudformation.resources.types import handler_for
from tests.local.serving import Server, client_at


@cache
def _client(url: str, service: str) -> Any:
    return client_at(url, service)


class Stack:
    """Creates, changes and deletes single resources."""

    def __init__(self, url: str) -> None:
        self.context = ResourceContext(
            account="123456789012",
            region="us-east-1",
            stack_name="Peagle-s",
            stack_id="arn:aws:cloudformation:us-east-1:123456789012:stack/Peagle-s/1",
            logical_id="It",
            request_id="request-1",
            client=lambda service: _client(url, service),
            pause=time.sleep,
        )

    def with_tags(self, **tags: str) -> Stack:
        self.context = replace(self.context, tags=tags)
        return self

    def with_role(self, arn: str) -> Stack:
        self.context = replace(self.context, role_arn=arn)
        return self

    def client(self, service: str) -> Any:
        return self.context.client(service)

    def create(self, type_name: str, **properties: Any) -> Created:
        handler = handler_for(type_name)
        assert handler is not None
        return handler.create(self.context, self.context.logical_id, properties)

    def update(
        self, type_name: str, made: Created, old: Mapping[str, Any], new: Mapping[str, Any]
    ) -> Created:
        handler = handler_for(type_name)
        assert handler is not None
        return handler.update(self.context, made.physical_id, old, new)

    def delete(self, type_name: str, made: Created | str, **properties: Any) -> None:
        handler = handler_for(type_name)
        assert handler is not None
        physical_id = made if isinstance(made, str) else made.physical_id
        handler.delete(self.context, physical_id, properties)

    def role(self, service: str, *statements: Mapping[str, Any], name: str | None = None) -> str:
        """Make a role that a service may assume; return its ARN."""
        trust = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
        properties: dict[str, Any] = {"AssumeRolePolicyDocument": trust}
        if name is not None:
            properties["RoleName"] = name
        if statements:
            document = {"Version": "2012-10-17", "Statement": list(statements)}
            properties["Policies"] = [{"PolicyName": "may", "PolicyDocument": document}]
        return str(self.create("AWS::IAM::Role", **properties).attributes["Arn"])


@pytest.fixture
def stack(server: Server) -> Stack:
    return Stack(server.url)
