"""AI workload configurations and AI benchmark jobs: Create, Describe, List, Stop, Delete."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sagemaker_local.clock import LocalClock

from . import ai_benchmarks_spec as spec
from .ai_benchmarks_records import ENDED, AiTable, BenchmarkPlan, BenchmarkRunner, JobRecord
from .errors import ApiError, invalid, not_local
from .paging import page
from .records import Record, Tables
from .shapes import checked
from .tags import as_list, from_list

log = logging.getLogger(__name__)

LOG_GROUP = "/aws/sagemaker/AIBenchmarkJobs"
_LONGEST_REASON = 1024
Operation = Callable[[Mapping[str, Any]], Any]


class AIBenchmarks:
    """The operations; jobs run one process group each, as long as the loop does."""

    def __init__(
        self, tables: Tables, clock: LocalClock, runner: BenchmarkRunner | None, directory: Path
    ) -> None:
        """Take what runs jobs (None refuses them) and the directory below which each gets one."""
        prefix = f"arn:aws:sagemaker:{tables.region}:{tables.account}"
        self._tables = tables
        self._clock = clock
        self._runner = runner
        self._directory = directory
        self._configs: AiTable[Record] = AiTable("AI workload config", f"{prefix}:ai-workload-config")
        self._jobs: AiTable[JobRecord] = AiTable("AI benchmark job", f"{prefix}:ai-benchmark-job")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._log_arn = f"arn:aws:logs:{tables.region}:{tables.account}:log-group:{LOG_GROUP}"
        tables.more |= {
            "sagemaker:ai-workload-config": self._configs,
            "sagemaker:ai-benchmark-job": self._jobs,
        }

    @property
    def operations(self) -> dict[str, Any]:
        """Operation -> what answers it."""
        return {
            "CreateAIWorkloadConfig": self.create_config,
            "DescribeAIWorkloadConfig": self.describe_config,
            "ListAIWorkloadConfigs": self.list_configs,
            "DeleteAIWorkloadConfig": self.delete_config,
            "CreateAIBenchmarkJob": self.create_job,
            "DescribeAIBenchmarkJob": self.describe_job,
            "ListAIBenchmarkJobs": self.list_jobs,
            "StopAIBenchmarkJob": self.stop_job,
            "DeleteAIBenchmarkJob": self.delete_job,
        }

    async def create_config(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateAIWorkloadConfig: the specification is checked here."""
        request = checked("CreateAIWorkloadConfig", body)
        name = request["AIWorkloadConfigName"]
        self._configs.refuse_taken(name)
        spec.parameters(_inline(request))
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        row = self._configs.add(Record(name, self._configs.arn(name), now, now, request, tags))
        return {"AIWorkloadConfigArn": row.arn}

    async def describe_config(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeAIWorkloadConfig."""
        row = self._configs.get(checked("DescribeAIWorkloadConfig", body)["AIWorkloadConfigName"])
        answer = {**row.body, "AIWorkloadConfigArn": row.arn, "CreationTime": row.created.timestamp()}
        return answer | ({"Tags": as_list(row.tags)} if row.tags else {})

    async def list_configs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListAIWorkloadConfigs."""

        def summary(row: Record) -> dict[str, Any]:
            created = row.created.timestamp()
            return {
                "AIWorkloadConfigName": row.name,
                "AIWorkloadConfigArn": row.arn,
                "CreationTime": created,
            }

        rows, token = page(self._configs, checked("ListAIWorkloadConfigs", body), summary)
        return {"AIWorkloadConfigs": rows, **({"NextToken": token} if token else {})}

    async def delete_config(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteAIWorkloadConfig: refused while a job that uses it has not ended."""
        row = self._configs.get(checked("DeleteAIWorkloadConfig", body)["AIWorkloadConfigName"])
        users = [
            job.name for job in self._jobs if job.workload_config == row.name and job.status not in ENDED
        ]
        if users:
            raise ApiError(
                "ResourceInUse", f'AI workload config "{row.arn}" is used by active jobs: {", ".join(users)}.'
            )
        self._configs.remove(row.name)
        return {"AIWorkloadConfigArn": row.arn}

    async def create_job(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """CreateAIBenchmarkJob: answers at once; whether the endpoint serves shows when the job runs."""
        request = checked("CreateAIBenchmarkJob", body)
        name = request["AIBenchmarkJobName"]
        self._jobs.refuse_taken(name)
        if self._runner is None:
            raise not_local("CreateAIBenchmarkJob in this server", "start it as `peagle-sm local up` does.")
        if "MlflowConfig" in request["OutputConfig"]:
            raise not_local("OutputConfig.MlflowConfig", "leave it out; the results are in S3.")
        config = self._configs.get(request["AIWorkloadConfigIdentifier"])
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        row = self._jobs.add(
            JobRecord(name, self._jobs.arn(name), now, now, request, tags, workload_config=config.name)
        )
        task = asyncio.create_task(self._run(row, dict(config.body), self._runner))
        self._running[row.name] = task
        task.add_done_callback(lambda ended: self._ended(row, stopped=ended.cancelled()))
        return {"AIBenchmarkJobArn": row.arn}

    async def describe_job(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeAIBenchmarkJob."""
        row = self._jobs.get(checked("DescribeAIBenchmarkJob", body)["AIBenchmarkJobName"])
        logs = [{"LogGroupArn": self._log_arn, "LogStreamName": row.name}]
        answer = {
            **row.body,
            "OutputConfig": {**row.body["OutputConfig"], "CloudWatchLogs": logs},
            "AIBenchmarkJobArn": row.arn,
            "AIBenchmarkJobStatus": row.status,
            "CreationTime": row.created.timestamp(),
            "StartTime": row.started.timestamp() if row.started else None,
            "EndTime": row.ended.timestamp() if row.ended else None,
            "FailureReason": row.failure_reason,
            "Tags": as_list(row.tags) or None,
        }
        return {key: value for key, value in answer.items() if value is not None}

    async def list_jobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListAIBenchmarkJobs."""

        def summary(row: JobRecord) -> dict[str, Any]:
            ended = {"EndTime": row.ended.timestamp()} if row.ended else {}
            return {
                "AIBenchmarkJobName": row.name,
                "AIBenchmarkJobArn": row.arn,
                "AIBenchmarkJobStatus": row.status,
                "CreationTime": row.created.timestamp(),
                "AIWorkloadConfigName": row.workload_config,
                **ended,
            }

        rows, token = page(self._jobs, checked("ListAIBenchmarkJobs", body), summary)
        return {"AIBenchmarkJobs": rows, **({"NextToken": token} if token else {})}

    async def stop_job(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """StopAIBenchmarkJob: Stopping until its processes have ended, then Stopped."""
        row = self._jobs.get(checked("StopAIBenchmarkJob", body)["AIBenchmarkJobName"])
        if row.status == "InProgress":
            self._become(row, "Stopping")
            self._running[row.name].cancel()
        elif row.status in ENDED:
            raise invalid(f'AI benchmark job "{row.arn}" has ended: its status is {row.status}.')
        return {"AIBenchmarkJobArn": row.arn}

    async def delete_job(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteAIBenchmarkJob: only once it has ended; what it wrote to S3 stays."""
        row = self._jobs.get(checked("DeleteAIBenchmarkJob", body)["AIBenchmarkJobName"])
        if row.status not in ENDED:
            raise invalid(f'AI benchmark job "{row.arn}" cannot be deleted while it is {row.status}.')
        self._jobs.remove(row.name)
        return {"AIBenchmarkJobArn": row.arn}

    async def close(self) -> None:
        """End every job."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, row: JobRecord, config: Mapping[str, Any], runner: BenchmarkRunner) -> None:
        row.started = self._clock.now()
        try:
            reason = await runner.run(self._plan(row, config))
        except ApiError as refused:
            reason = refused.message
        except Exception as error:
            log.exception("AI benchmark job %s failed", row.name)
            reason = f"{type(error).__name__}: {error}"
        row.failure_reason = None if reason is None else reason[:_LONGEST_REASON]
        self._become(row, "Completed" if reason is None else "Failed")

    def _ended(self, row: JobRecord, *, stopped: bool) -> None:
        self._running.pop(row.name, None)
        if stopped:
            self._become(row, "Stopped")

    def _become(self, row: JobRecord, status: str) -> None:
        row.status, row.modified = status, self._clock.now()
        if status in ENDED:
            row.ended = row.modified

    def _plan(self, row: JobRecord, config: Mapping[str, Any]) -> BenchmarkPlan:
        endpoint, component = self._target(row.body["BenchmarkTarget"].get("Endpoint"))
        channels = config.get("DatasetConfig", {}).get("InputDataConfig", [])
        return BenchmarkPlan(
            job=row.name,
            endpoint=endpoint,
            component=component,
            arguments=tuple(spec.arguments(spec.parameters(_inline(config)))),
            channels=tuple(
                (channel["ChannelName"], channel["DataSource"]["S3DataSource"]["S3Uri"])
                for channel in channels
            ),
            output=row.body["OutputConfig"]["S3OutputLocation"],
            root=self._directory / row.name,
        )

    def _target(self, target: Mapping[str, Any] | None) -> tuple[str, str | None]:
        """Endpoint and component of a job, both there and fit to be asked; else ApiError."""
        if target is None:
            raise invalid("BenchmarkTarget names no endpoint.")
        endpoint = self._tables.endpoints.get(_name(target["Identifier"]))
        asked = [_name(one["Identifier"]) for one in target.get("InferenceComponents", [])]
        if len(asked) > 1:
            raise not_local("A benchmark of several inference components", "run one job for each.")
        if endpoint.status != "InService":
            raise invalid(f"Endpoint {endpoint.name} is {endpoint.status}, not InService.")
        if not asked:
            if endpoint.hosts_components:
                raise invalid(
                    f"No model is deployed directly on endpoint {endpoint.name}: name the inference "
                    "components to benchmark in BenchmarkTarget."
                )
            return endpoint.name, None
        component = self._tables.components.get(asked[0])
        if component.endpoint != endpoint.name:
            raise invalid(f"Inference component {component.name} is not on endpoint {endpoint.name}.")
        return endpoint.name, component.name


def _inline(request: Mapping[str, Any]) -> str:
    inline = request.get("AIWorkloadConfigs", {}).get("WorkloadSpec", {}).get("Inline")
    if inline is None:
        raise invalid("AIWorkloadConfigs.WorkloadSpec.Inline is required: found none.")
    return str(inline)


def _name(identifier: str) -> str:
    """The name in a name or an ARN."""
    return identifier.rpartition("/")[2]
