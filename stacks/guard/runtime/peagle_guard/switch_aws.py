"""``turning.SwitchAws`` over boto3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.exceptions import ClientError

from peagle_guard import settings as environment
from peagle_guard.boto_aws import described, is_missing, tags_of
from peagle_guard.clients import client
from peagle_guard.records import Endpoint
from peagle_guard.register import DynamoRegister
from peagle_guard.settings import Settings
from peagle_guard.turning import NoUpdates, Stack

_NO_UPDATES = "no updates are to be performed"
# DescribeScalableTargets takes at most 50 resource ids.
_MOST_IDS = 50


class BotoSwitch:
    """AWS by boto3 for the switch."""

    def __init__(self, settings: Settings, session: boto3.Session | None = None) -> None:
        """Take the settings, and a session (the Lambda's own by default)."""
        self._settings = settings
        self._register = DynamoRegister(client("dynamodb", session), settings.table)
        self._cloudformation = client("cloudformation", session)
        self._sagemaker = client("sagemaker", session)
        self._scheduler = client("scheduler", session)
        self._scaling = client("application-autoscaling", session)

    @property
    def register(self) -> DynamoRegister:
        """The guard's memory."""
        return self._register

    @property
    def now(self) -> datetime:
        """The present."""
        return environment.now(self._settings)

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks; None where there is none of that name."""
        try:
            found = self._cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in error.response["Error"].get("Message", ""):
                return None
            raise
        parameters = {
            row["ParameterKey"]: row.get("ParameterValue", "") for row in found.get("Parameters", ())
        }
        return Stack(name, found["StackStatus"], parameters)

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template.

        Raises:
            NoUpdates: CloudFormation sees no difference.
        """
        try:
            self._cloudformation.update_stack(
                StackName=name, UsePreviousTemplate=True, Parameters=list(parameters)
            )
        except ClientError as error:
            if _NO_UPDATES in error.response["Error"].get("Message", "").lower():
                raise NoUpdates from error
            raise

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint; None where there is none of that name."""
        return described(self._sagemaker, name)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags."""
        return tags_of(self._sagemaker, arn)

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint, those that are being deleted included."""
        pages = self._sagemaker.get_paginator("list_inference_components").paginate(
            EndpointNameEquals=endpoint
        )
        return [row["InferenceComponentName"] for page in pages for row in page["InferenceComponents"]]

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""
        pages = self._scaling.get_paginator("describe_scalable_targets")
        return [
            (row["ResourceId"], row["ScalableDimension"])
            for first in range(0, len(resource_ids), _MOST_IDS)
            for page in pages.paginate(
                ServiceNamespace="sagemaker", ResourceIds=list(resource_ids[first : first + _MOST_IDS])
            )
            for row in page["ScalableTargets"]
        ]

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget; one that is gone already is fine."""
        try:
            self._scaling.deregister_scalable_target(
                ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=dimension
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ObjectNotFoundException":
                raise

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent; one that is gone or being deleted already is left alone."""
        try:
            status = self._sagemaker.describe_inference_component(InferenceComponentName=name)
            if status["InferenceComponentStatus"] != "Deleting":
                self._sagemaker.delete_inference_component(InferenceComponentName=name)
        except ClientError as error:
            if not is_missing(error):
                raise

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint; the configuration and the model are kept."""
        self._sagemaker.delete_endpoint(EndpointName=name)

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule; None where there is none of that name."""
        try:
            answer = self._scheduler.get_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return None
            raise
        start, changed_at = answer.get("StartDate"), answer.get("LastModificationDate")
        return (
            None if start is None else start.astimezone(UTC),
            None if changed_at is None else changed_at.astimezone(UTC),
        )

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""
        try:
            self._scheduler.delete_schedule(Name=name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
