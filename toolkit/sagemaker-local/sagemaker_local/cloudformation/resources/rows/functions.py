"""Lambda functions and EventBridge schedules."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

from sagemaker_local.cloudformation.resources.base import Properties, ResourceFailure
from sagemaker_local.cloudformation.resources.by_table import (
    Members,
    OnEach,
    Row,
    Setting,
)
from sagemaker_local.cloudformation.resources.calls import refuse_others
from sagemaker_local.cloudformation.resources.rows.addresses import answers, arn, arn_of, by_arn


def _code(value: Mapping[str, Any]) -> Members:
    """Return a function's package; source code of the template is the file ``index``, as in AWS."""
    refuse_others(value, ("ZipFile", "S3Bucket", "S3Key", "S3ObjectVersion"), "AWS::Lambda::Function's Code")
    if "ZipFile" not in value:
        return value
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.py"), str(value["ZipFile"]))
    return {"ZipFile": packed.getvalue()}


def _latest_only(properties: Properties) -> Properties:
    if properties["Qualifier"] != "$LATEST":
        raise ResourceFailure(
            f"the local Lambda has the qualifier $LATEST only, found {properties['Qualifier']}"
        )
    return properties


# Properties of the configuration, with what each goes back to when the template no longer sets it.
_CONFIGURATION: dict[str, Any] = {
    "Role": None,
    "Handler": None,
    "Runtime": None,
    "Description": "",
    "Timeout": 3,
    "MemorySize": 128,
    "Environment": {"Variables": {}},
    "DeadLetterConfig": {},
    "TracingConfig": {"Mode": "PassThrough"},
    "EphemeralStorage": {"Size": 512},
    "LoggingConfig": None,
}

ROWS: dict[str, Row | OnEach] = {
    "AWS::Lambda::Function": Row(
        "lambda",
        create="CreateFunction",
        update="UpdateFunctionConfiguration",
        defaults=_CONFIGURATION,
        delete="DeleteFunction",
        name="FunctionName",
        longest=64,
        takes=frozenset({*_CONFIGURATION, "KmsKeyArn", "Architectures", "PackageType"}),
        fixed=("Architectures", "PackageType"),
        members={"KmsKeyArn": "KMSKeyArn"},
        request=lambda properties: {**properties, "Code": _code(properties["Code"])},
        attributes=arn_of("lambda", "function:", FunctionName=""),
        exists=answers(
            "lambda", "GetFunction", lambda ctx, name: {"FunctionName": name}, "ResourceNotFoundException"
        ),
        role=lambda properties: properties.get("Role"),
        passed_to="lambda.amazonaws.com",
        settings=(
            Setting("Code", "UpdateFunctionCode", read=_code, created=True),
            Setting(
                "ReservedConcurrentExecutions",
                "PutFunctionConcurrency",
                "ReservedConcurrentExecutions",
                remove="DeleteFunctionConcurrency",
            ),
        ),
        tagging=by_arn("lambda", "function:", "Resource", form=dict),
    ),
    "AWS::Lambda::EventInvokeConfig": Row(
        "lambda",
        create="PutFunctionEventInvokeConfig",
        update="PutFunctionEventInvokeConfig",
        delete="DeleteFunctionEventInvokeConfig",
        request=_latest_only,
        ref=lambda name, answer, properties: f"{properties['FunctionName']}|{properties['Qualifier']}",
        address=lambda ref, properties: {key: properties[key] for key in ("FunctionName", "Qualifier")},
    ),
    "AWS::Lambda::Permission": Row(  # all of its properties are immutable
        "lambda",
        create="AddPermission",
        delete="RemovePermission",
        name="StatementId",
        longest=100,
        address=lambda name, properties: {"StatementId": name, "FunctionName": properties["FunctionName"]},
        attributes=lambda ctx, name, properties: {"Id": name},
    ),
    "AWS::Scheduler::Schedule": Row(
        "scheduler",
        create="CreateSchedule",
        update="UpdateSchedule",
        delete="DeleteSchedule",
        name="Name",
        longest=64,
        fixed=("GroupName",),
        address=lambda name, properties: {"Name": name, "GroupName": properties.get("GroupName")},
        attributes=lambda ctx, name, properties: {
            "Arn": arn("scheduler", "schedule/")(ctx, f"{properties.get('GroupName', 'default')}/{name}")
        },
        role=lambda properties: properties["Target"]["RoleArn"],
        passed_to="scheduler.amazonaws.com",
    ),
    "AWS::Scheduler::ScheduleGroup": Row(
        "scheduler",
        create="CreateScheduleGroup",
        delete="DeleteScheduleGroup",
        name="Name",
        longest=64,
        attributes=arn_of("scheduler", "schedule-group/"),
        tagging=by_arn("scheduler", "schedule-group/"),
    ),
}
