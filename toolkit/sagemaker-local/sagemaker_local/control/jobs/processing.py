"""Processing jobs: the records and the operations.

A job's life, with its processes, is `sagemaker_local.runtime.processing_run`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.control.capacity import Quotas
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.jobs.access import JobAccess, Permitted, PrefixExists, refuse_over_quota
from sagemaker_local.control.jobs.processing_checks import check_request
from sagemaker_local.control.jobs.training import IN_PROGRESS, TrainingLife, TrainingRecord, seconds_of
from sagemaker_local.control.models import check_role, from_list
from sagemaker_local.control.records import Table, Tables
from sagemaker_local.control.requests import checked, page


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
        self._assumable = assumable
        self._access = JobAccess(tables.region, permitted, prefix_exists)
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
        self._access.check_pull(role, request["AppSpecification"]["ImageUri"])
        self._check_quota(request)
        for each in request.get("ProcessingInputs", []):
            await self._access.check_data(role, each["S3Input"]["S3Uri"])
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

    def _check_quota(self, request: Mapping[str, Any]) -> None:
        cluster = request["ProcessingResources"]["ClusterConfig"]
        kind = cluster["InstanceType"]
        used = sum(
            len(row.hosts) for row in self._jobs if row.status in IN_PROGRESS and row.instance_type == kind
        )
        refuse_over_quota(self._quotas, f"{kind} for processing job usage", used, cluster["InstanceCount"])


def description(row: ProcessingRecord) -> dict[str, Any]:
    """DescribeProcessingJob's answer."""
    answer: dict[str, Any] = {
        **row.body,
        **_summary(row),
        "ProcessingStartTime": seconds_of(row.started),
    }
    return {key: value for key, value in answer.items() if value is not None}


def _summary(row: ProcessingRecord) -> dict[str, Any]:
    answer = {
        "ProcessingJobName": row.name,
        "ProcessingJobArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "ProcessingEndTime": seconds_of(row.ended),
        "LastModifiedTime": row.modified.timestamp(),
        "ProcessingJobStatus": row.status,
        "FailureReason": row.failure_reason,
        "ExitMessage": row.exit_message,
    }
    return {key: value for key, value in answer.items() if value is not None}
