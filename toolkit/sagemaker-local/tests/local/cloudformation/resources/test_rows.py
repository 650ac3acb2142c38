"""The table of types whose verbs are API calls alone: every row names operations and members that exist."""

from __future__ import annotations

import pytest
from botocore.session import Session

from sagemaker_local.cloudformation.resources.base import ResourceFailure
from sagemaker_local.cloudformation.resources.by_table import Items, Row
from sagemaker_local.cloudformation.resources.rows import ROWS
from sagemaker_local.cloudformation.resources.schemas import allowed_properties
from tests.local.cloudformation.resources.conftest import Stack


@pytest.mark.parametrize(("type_name", "row"), ROWS.items(), ids=list(ROWS))
def test_its_operations_and_its_properties_exist(type_name: str, row: Row) -> None:
    operations = Session().get_service_model(row.service).operation_names
    allowed = allowed_properties(type_name) or frozenset()
    assert row.takes is None or row.takes <= allowed
    if isinstance(row, Row):
        named = {row.create, row.delete, row.update, *(setting.put for setting in row.settings)}
        named |= {setting.remove for setting in row.settings}
        assert named - {None} <= set(operations)
        assert {setting.property for setting in row.settings} <= allowed
        assert (row.tagging is not None) == ("Tags" in allowed or row.name == "AWS::IAM::ManagedPolicy")
        attached = [setting for setting in row.settings if isinstance(setting, Items)]
        assert not attached or row.service == "iam"


def test_a_parameter_is_refused_where_one_is_and_changed_in_place(stack: Stack) -> None:
    properties = {"Name": "/cdk-bootstrap/x/version", "Type": "String", "Value": "28"}
    parameter = stack.create("AWS::SSM::Parameter", **properties)
    assert parameter.physical_id == "/cdk-bootstrap/x/version"
    assert parameter.attributes["Value"] == "28"
    with pytest.raises(ResourceFailure, match="ParameterAlreadyExists"):
        stack.create("AWS::SSM::Parameter", **properties)
    stack.update("AWS::SSM::Parameter", parameter, properties, {**properties, "Value": "29"})
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name=properties["Name"])["Parameter"]["Value"] == "29"
    stack.delete("AWS::SSM::Parameter", parameter)
    stack.delete("AWS::SSM::Parameter", parameter)
