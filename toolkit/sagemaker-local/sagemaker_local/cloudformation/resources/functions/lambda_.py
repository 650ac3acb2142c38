"""AWS::Lambda::Function and AWS::Lambda::EventInvokeConfig."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.access.roles import check_role, may
from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    ResourceFailure,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    refuse_others,
    retag,
    send,
)

_GONE = ("ResourceNotFoundException",)
_TYPE = "AWS::Lambda::Function"
_SERVICE = "lambda.amazonaws.com"
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
_KNOWN = {
    *_CONFIGURATION,
    "FunctionName",
    "Code",
    "KmsKeyArn",
    "Architectures",
    "PackageType",
    "ReservedConcurrentExecutions",
    "Tags",
}


class Function:
    """A function whose package is a zip file."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the function."""
        _check(ctx, properties)
        name = properties.get("FunctionName") or generated_name(ctx, logical_id, 64)
        with gone_is_fine(*_GONE):
            send(ctx, "lambda", "GetFunction", {"FunctionName": name})
            raise ResourceFailure(f"{name} already exists")
        request = {
            "FunctionName": name,
            "Code": _code(ctx, properties["Code"]),
            **{key: properties.get(key) for key in _CONFIGURATION},
            "KMSKeyArn": properties.get("KmsKeyArn"),
            "Architectures": properties.get("Architectures"),
            "PackageType": properties.get("PackageType"),
            "Tags": merged_tags(ctx, properties) or None,
        }
        arn = send(ctx, "lambda", "CreateFunction", request)["FunctionArn"]
        self._concurrency(ctx, name, {}, properties)
        return Created(name, {"Arn": arn, "FunctionName": name})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change configuration, code, concurrency and tags."""
        _check(ctx, new)
        function = {"FunctionName": physical_id}
        if new["Code"] != old["Code"] or new.get("Architectures") != old.get("Architectures"):
            code = {**_code(ctx, new["Code"]), "Architectures": new.get("Architectures")}
            send(ctx, "lambda", "UpdateFunctionCode", {**function, **code})
        configuration = {key: new.get(key, default) for key, default in _CONFIGURATION.items()}
        request = {**function, **configuration, "KMSKeyArn": new.get("KmsKeyArn")}
        arn = send(ctx, "lambda", "UpdateFunctionConfiguration", request)["FunctionArn"]
        self._concurrency(ctx, physical_id, old, new)
        retag(ctx, "lambda", {"Resource": arn}, old, new, form=dict)
        return Created(physical_id, {"Arn": arn, "FunctionName": physical_id})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the function."""
        with gone_is_fine(*_GONE):
            send(ctx, "lambda", "DeleteFunction", {"FunctionName": physical_id})

    def _concurrency(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        reserved = new.get("ReservedConcurrentExecutions")
        if reserved is not None:
            request = {"FunctionName": name, "ReservedConcurrentExecutions": reserved}
            send(ctx, "lambda", "PutFunctionConcurrency", request)
        elif old.get("ReservedConcurrentExecutions") is not None:
            send(ctx, "lambda", "DeleteFunctionConcurrency", {"FunctionName": name})


def _check(ctx: ResourceContext, properties: Properties) -> None:
    refuse_others(properties, _KNOWN, _TYPE)
    role = properties["Role"]
    refusal = "The role defined for the function cannot be assumed by Lambda."
    check_role(ctx, role, _SERVICE, refusal)
    target = (properties.get("DeadLetterConfig") or {}).get("TargetArn")
    if target is None:
        return
    service, action = ("SNS", "Publish") if ":sns:" in target else ("SQS", "SendMessage")
    if not may(ctx, role, f"{service.lower()}:{action}", target, {}):
        raise ResourceFailure(
            f"The provided execution role does not have permissions to call {action} on {service}"
        )


def _code(ctx: ResourceContext, code: Properties) -> dict[str, Any]:
    if "ZipFile" in code:
        return {"ZipFile": _zipped(str(code["ZipFile"]))}
    if "ImageUri" in code:
        raise ResourceFailure("the local Lambda runs only zip packages; this function is an image")
    try:
        ctx.client("s3").head_object(Bucket=code["S3Bucket"], Key=code["S3Key"])
    except ClientError as error:
        raise ResourceFailure(
            "Error occurred while GetObject. S3 Error Code: NoSuchKey. S3 Error Message: "
            f"The specified key does not exist. (s3://{code['S3Bucket']}/{code['S3Key']})"
        ) from error
    return {key: code[key] for key in ("S3Bucket", "S3Key", "S3ObjectVersion") if key in code}


def _zipped(source: str) -> bytes:
    """Zip source code from the template; CloudFormation names the file ``index``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.py"), source)
    return packed.getvalue()


class EventInvokeConfig:
    """Retry settings of a function's asynchronous events."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Set it; only the unpublished version can be run here."""
        if properties["Qualifier"] != "$LATEST":
            raise ResourceFailure(
                f"the local Lambda has the qualifier $LATEST only, found {properties['Qualifier']}"
            )
        send(ctx, "lambda", "PutFunctionEventInvokeConfig", dict(properties))
        return Created(f"{properties['FunctionName']}|{properties['Qualifier']}")

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Delete and set it: moto would keep the old one first."""
        self.delete(ctx, physical_id, old)
        return self.create(ctx, "", new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Go back to the defaults."""
        which = {"FunctionName": properties["FunctionName"], "Qualifier": properties["Qualifier"]}
        with gone_is_fine(*_GONE):
            send(ctx, "lambda", "DeleteFunctionEventInvokeConfig", which)


KINDS: dict[str, Kind] = {
    "AWS::Lambda::Function": Function(),
    "AWS::Lambda::EventInvokeConfig": EventInvokeConfig(),
}
