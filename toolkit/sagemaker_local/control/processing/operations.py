"""Processing jobs: the records and the operations.

A job's life, with its processes, is `sagemaker_local.runtime.processing_run`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from sagemaker_local.clock import LocalClock
from sagemaker_local.control.capacity import Quotas
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.models import check_role, from_list
from sagemaker_local.control.processing.checks import check_request
from sagemaker_local.control.records import Table, Tables
from sagemaker_local.control.requests import checked, page
from sagemaker_local.control.training_jobs import (
    IN_PROGRESS,
    Permitted,
    PrefixExists,
    TrainingLife,
    TrainingRecord,
)

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_IMAGE = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+/([^:@]+)")


@dataclass
class ProcessingRecord(TrainingRecord):
    """A processing job: `body` is its CreateProcessingJob request, defaults of AWS filled in.

    It lives as a training job on demand does, but has no secondary status. ``exit_message`` is what its
    containers left in ``/opt/ml/output/message``.
    """

    exit_message: str | None = None

    @property
    def spot(self) -> bool:
        """Processing jobs have no Spot instances."""
        return False

    @property
    def instance_type(self) -> str:
        """The type of its instances."""
        return str(self.body["ProcessingResources"]["ClusterConfig"]["InstanceType"])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its instances: algo-1, algo-2, …"""
        count = self.body["ProcessingResources"]["ClusterConfig"]["InstanceCount"]
        return tuple(f"algo-{n}" for n in range(1, count + 1))


class _ProcessingTable(Table[ProcessingRecord]):
    """A table with the codes of the processing operations."""

    def get(self, name: str) -> ProcessingRecord:
        """The job; raises ApiError (`ResourceNotFound`) when there is none."""
        row = self.find(name)
        if row is None:
            raise ApiError("ResourceNotFound", f"Could not find requested job with name: {name}")
        return row

    def refuse_taken(self, name: str) -> None:
        """Raises ApiError (`ResourceInUse`) when the name is in use."""
        if self.find(name) is not None:
            raise ApiError(
                "ResourceInUse",
                "Job name must be unique within an AWS account and region, and a job with this name already "
                f"exists ({self.arn(name)})",
            )


def _believe(_role: str, _action: str, _resource: str, _context: Mapping[str, str]) -> bool:
    return True


class ProcessingJobs:
    """The operations."""

    def __init__(
        self,
        tables: Tables,
        clock: LocalClock,
        life: TrainingLife | None,
        *,
        quotas: Quotas,
        assumable: Any = None,
        permitted: Permitted | None = None,
        prefix_exists: PrefixExists | None = None,
    ) -> None:
        """Set up with what runs the jobs (None refuses them) and asks IAM and S3 (None believes)."""
        self._clock = clock
        self._life = life
        self._quotas = quotas
        self._region = tables.region
        self._assumable = assumable
        self._permitted = permitted or _believe
        self._exists = prefix_exists
        arn = f"arn:aws:sagemaker:{tables.region}:{tables.account}:processing-job"
        self._jobs = _ProcessingTable("processing job", arn)
        tables.more["sagemaker:processing-job"] = self._jobs

    @property
    def operations(self) -> dict[str, Any]:
        """Operation -> its handler."""
        return {
            "CreateProcessingJob": self.create,
            "DescribeProcessingJob": self.describe,
            "ListProcessingJobs": self.listed,
            "StopProcessingJob": self.stop,
            "DeleteProcessingJob": self.delete,
        }

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateProcessingJob: answers at once; the job runs on."""
        request = checked("CreateProcessingJob", body)
        name, role = request["ProcessingJobName"], request["RoleArn"]
        self._jobs.refuse_taken(name)
        if self._life is None:
            raise not_local("CreateProcessingJob in this server", "start it as `peagle-sm local up` does.")
        request["ProcessingResources"].setdefault("ClusterConfig", {}).setdefault("InstanceCount", 1)
        check_request(request)
        check_role(role, self._assumable)
        self._check_pull(role, request["AppSpecification"]["ImageUri"])
        self._check_quota(request)
        for each in request.get("ProcessingInputs", []):
            await self._check_data(role, each["S3Input"]["S3Uri"])
        self._jobs.refuse_taken(name)  # another request may have come while S3 was asked
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        row = self._jobs.add(ProcessingRecord(name, self._jobs.arn(name), now, now, request, tags))
        self._life.start(row)
        return {"ProcessingJobArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeProcessingJob."""
        return description(self._jobs.get(checked("DescribeProcessingJob", body)["ProcessingJobName"]))

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListProcessingJobs: sorted by creation, ascending, unless the request says otherwise."""
        rows, token = page(self._jobs, checked("ListProcessingJobs", body), _summary)
        return {"ProcessingJobSummaries": rows, **({"NextToken": token} if token else {})}

    async def stop(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """StopProcessingJob: Stopping until its processes have ended, then Stopped."""
        row = self._jobs.get(checked("StopProcessingJob", body)["ProcessingJobName"])
        if row.status != "InProgress" or self._life is None:
            raise invalid(f"The request was rejected because the processing job is in status {row.status}.")
        self._life.stop(row)
        return {}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteProcessingJob: only once it has ended; what it wrote to S3 stays."""
        row = self._jobs.get(checked("DeleteProcessingJob", body)["ProcessingJobName"])
        if row.status in IN_PROGRESS:
            raise ApiError(
                "ResourceInUse", f"The processing job {row.arn} cannot be deleted in status {row.status}."
            )
        self._jobs.remove(row.name)
        return {}

    async def close(self) -> None:
        """End every job."""
        if self._life is not None:
            await self._life.close()

    def _check_pull(self, role: str, image: str) -> None:
        parts = _IMAGE.match(image)
        if parts is None:
            return
        registry, region, repository = parts.groups()
        arn = f"arn:aws:ecr:{region}:{registry}:repository/{repository}"
        if not all(self._permitted(role, action, arn, {}) for action in _PULL):
            raise invalid(
                f"Access denied for repository: {repository} in registry ID: {registry}. Please check if "
                f"your ECR repository and image exist and role {role} has proper pull permissions for "
                f"SageMaker: {', '.join(_PULL)}"
            )

    def _check_quota(self, request: Mapping[str, Any]) -> None:
        cluster = request["ProcessingResources"]["ClusterConfig"]
        kind, asked = cluster["InstanceType"], cluster["InstanceCount"]
        quota = f"{kind} for processing job usage"
        limit = self._quotas.limit(quota)
        used = sum(
            len(row.hosts) for row in self._jobs if row.status in IN_PROGRESS and row.instance_type == kind
        )
        if limit is not None and used + asked > limit:
            raise ApiError(
                "ResourceLimitExceeded",
                f"The account-level service limit '{quota}' is {limit} Instances, with current utilization "
                f"of {used} Instances and a request delta of {asked} Instances. Please use AWS Service "
                "Quotas to request an increase for this quota.",
            )

    async def _check_data(self, role: str, uri: str) -> None:
        bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.lstrip("/")
        may = self._permitted(role, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": prefix})
        if not may or (self._exists is not None and not await self._exists(uri)):
            raise invalid(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({self._region}), that objects exist under that "
                f'S3 prefix, and that the role "{role}" has "s3:ListBucket" permissions on bucket '
                f'"{bucket}".'
            )


def description(row: ProcessingRecord) -> dict[str, Any]:
    """DescribeProcessingJob's answer."""
    answer: dict[str, Any] = {
        **row.body,
        **_summary(row),
        "ProcessingStartTime": _seconds(row.started),
    }
    return {key: value for key, value in answer.items() if value is not None}


def _summary(row: ProcessingRecord) -> dict[str, Any]:
    answer = {
        "ProcessingJobName": row.name,
        "ProcessingJobArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "ProcessingEndTime": _seconds(row.ended),
        "LastModifiedTime": row.modified.timestamp(),
        "ProcessingJobStatus": row.status,
        "FailureReason": row.failure_reason,
        "ExitMessage": row.exit_message,
    }
    return {key: value for key, value in answer.items() if value is not None}


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
