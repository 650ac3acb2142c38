"""The table of types whose verbs are one call each: every row names calls and members that exist."""

from __future__ import annotations

import pytest
from botocore.model import StructureShape
from botocore.session import Session

from sagemaker_local.cloudformation.resources import ResourceFailure
from sagemaker_local.cloudformation.resources.schemas import allowed_properties
from sagemaker_local.cloudformation.resources.table import ROWS, Row
from tests.local.cloudformation.resources.conftest import Stack

rows = pytest.mark.parametrize(("type_name", "row"), ROWS.items(), ids=list(ROWS))


def members(row: Row, operation: str) -> set[str]:
    shape = Session().get_service_model(row.service).operation_model(operation).input_shape
    assert isinstance(shape, StructureShape)
    return set(shape.members)


@rows
def test_its_calls_take_the_name_and_every_property_of_the_template(type_name: str, row: Row) -> None:
    renamed = row.members or {}
    properties = {renamed.get(name, name) for name in allowed_properties(type_name) or () if name != "Tags"}
    for operation in (row.create, *([row.update] if row.update else [])):
        taken = members(row, operation)
        assert {row.name, *properties} <= taken
        assert row.tagged <= ("Tags" in taken)
    assert set(row.update_with or {}) <= members(row, row.update or row.create)
    assert {f"{row.name}s" if row.listed else row.name, *row.deleted_with} <= members(row, row.delete)


@rows
def test_a_type_that_takes_tags_gets_the_stack_s(type_name: str, row: Row) -> None:
    assert row.tagged == ("Tags" in (allowed_properties(type_name) or ()))


def test_a_parameter_is_refused_where_one_is_and_changed_in_place(stack: Stack) -> None:
    properties = {"Name": "/cdk-bootstrap/x/version", "Type": "String", "Value": "28"}
    made = stack.create("AWS::SSM::Parameter", **properties)
    assert made.physical_id == "/cdk-bootstrap/x/version"
    assert made.attributes["Value"] == "28"
    with pytest.raises(ResourceFailure, match="ParameterAlreadyExists"):
        stack.create("AWS::SSM::Parameter", **properties)
    stack.update("AWS::SSM::Parameter", made, properties, {**properties, "Value": "29"})
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name=properties["Name"])["Parameter"]["Value"] == "29"
    stack.delete("AWS::SSM::Parameter", made)
    stack.delete("AWS::SSM::Parameter", made)
