"""AI workload configurations and AI benchmark jobs: what AWS accepts, the records, and the operations.

Names and types of the workload specification are those of "Set up a workload configuration for generative AI
inference recommendations" (SageMaker developer guide), whose names are AIPerf's own options. The wording of
the refusals is ours.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from sagemaker_local.clock import LocalClock

from .errors import ApiError, invalid, not_local
from .models import as_list, from_list
from .records import Record, Table, Tables
from .requests import checked, page

_KEYS = ("benchmark", "parameters", "secrets", "tooling")
_NUMBERS: dict[str, tuple[type, ...]] = {"Integer": (int,), "Float": (int, float)}
_INTEGERS = (
    "prompt_input_tokens_mean",
    "output_tokens_mean",
    "concurrency",
    "request_count",
    "benchmark_duration",
    "prefill_concurrency",
    "request_timeout_seconds",
    "benchmark_grace_period",
    "random_seed",
    "num_conversations",
    "warmup_duration",
    "warmup_request_count",
    "warmup_concurrency",
    "warmup_prefill_concurrency",
    "num_warmup_sessions",
)
_FLOATS = (
    "prompt_input_tokens_stddev",
    "output_tokens_stddev",
    "request_rate",
    "arrival_smoothness",
    "warmup_request_rate",
    "warmup_grace_period",
)
_STRINGS = (
    "request_rate_mode",
    "tokenizer",
    "goodput",
    "extra_inputs",
    "warmup_arrival_pattern",
    "public_dataset",
    "custom_dataset_type",
    "input_file",
    "dataset_sampling_strategy",
)
_BOOLEANS = ("streaming", "verbose")
# AWS has them; the local job runs text on the endpoint's one model.
_NOT_LOCAL = ("max_concurrency", "hf_token", "model_selection_strategy")
_NOT_LOCAL_PREFIXES = ("image_", "video_", "batch_size_")
TYPES: dict[str, str] = {
    **dict.fromkeys(_INTEGERS, "Integer"),
    **dict.fromkeys(_FLOATS, "Float"),
    **dict.fromkeys(_STRINGS, "String"),
    **dict.fromkeys(_BOOLEANS, "Boolean"),
}
ALIASES = {
    "synthetic_input_tokens_mean": "prompt_input_tokens_mean",
    "isl": "prompt_input_tokens_mean",
    "synthetic_input_tokens_stddev": "prompt_input_tokens_stddev",
    "isl_stddev": "prompt_input_tokens_stddev",
    "prompt_output_tokens_mean": "output_tokens_mean",
    "osl": "output_tokens_mean",
    "prompt_output_tokens_stddev": "output_tokens_stddev",
    "osl_stddev": "output_tokens_stddev",
    "num_requests": "request_count",
    "arrival_pattern": "request_rate_mode",
    "vllm_burstiness": "arrival_smoothness",
    "conversation_num": "num_conversations",
    "num_sessions": "num_conversations",
    "num_warmup_requests": "warmup_request_count",
}
# Where AIPerf's option is not the parameter with dashes.
_OPTIONS = {"num_conversations": "--conversation-num", "request_rate_mode": "--arrival-pattern"}
# Several values in one string.
_LISTS = ("extra_inputs", "goodput")


def parameters(inline: str) -> dict[str, Any]:
    """The parameters of an inline specification under their own names, defaults of AWS filled in.

    Raises:
        ApiError: it is neither JSON nor YAML, is not of AWS's form, or asks what is not local.
    """
    document = _document(inline)
    given = document.get("parameters") or {}
    if not isinstance(given, dict):
        raise invalid("WorkloadSpec: parameters must be a mapping.")
    known: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(str(name), str(name))
        if own in known:
            raise invalid(f"WorkloadSpec: the parameter {name} is given twice, as an alias of {own}.")
        known[own] = _checked(own, value)
    return {"streaming": True, "random_seed": 42, **known}


def arguments(values: Mapping[str, Any]) -> list[str]:
    """AIPerf's command line for parameters; an unset streaming or verbose has no argument."""
    return list(_arguments(values))


def _arguments(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
        if isinstance(value, bool):
            if value:
                yield option
        elif name in _LISTS:
            for item in str(value).split():
                yield from (option, item)
        else:
            yield from (option, str(value))


def _document(inline: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(inline)  # JSON is YAML
    except yaml.YAMLError as error:
        raise invalid(f"WorkloadSpec is neither JSON nor YAML: {error}") from None
    if not isinstance(document, dict):
        raise invalid("WorkloadSpec must be a mapping.")
    unknown = [str(key) for key in document if key not in _KEYS]
    if unknown:
        raise invalid(f"WorkloadSpec: unknown keys {', '.join(unknown)}; allowed are {', '.join(_KEYS)}.")
    tool = document.get("benchmark")
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "aiperf":
        raise invalid(
            f"WorkloadSpec: benchmark/type {json.dumps(kind)} does not match the pattern ^(aiperf)$."
        )
    if document.get("secrets"):
        raise not_local("WorkloadSpec: secrets", "a public tokenizer, or one in a channel, needs none.")
    return document


def _checked(name: str, value: Any) -> Any:
    if name in _NOT_LOCAL or name.startswith(_NOT_LOCAL_PREFIXES):
        raise not_local(f"WorkloadSpec: the parameter {name}", "leave it out.")
    wanted = TYPES.get(name)
    if wanted is None:
        raise invalid(f"WorkloadSpec: unknown parameter {name}; known are {', '.join(TYPES)}.")
    if not _is(wanted, value):
        raise invalid(f"WorkloadSpec: {name} must be of type {wanted}, found {json.dumps(value)}.")
    return value


def _is(wanted: str, value: Any) -> bool:
    if wanted == "Boolean":
        return isinstance(value, bool)
    if wanted == "String":
        return isinstance(value, str) and bool(value)
    return isinstance(value, _NUMBERS[wanted]) and not isinstance(value, bool)


# A job in one of these has ended, and only then can it be deleted.
ENDED = ("Completed", "Failed", "Stopped")


@dataclass
class JobRecord(Record):
    """An AI benchmark job: `body` is its CreateAIBenchmarkJob request.

    Attributes:
        workload_config: name of its workload configuration.
        failure_reason: why it ended as Failed.
    """

    status: str = "InProgress"
    workload_config: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    failure_reason: str | None = None


R = TypeVar("R", bound=Record)


class AiTable(Table[R]):
    """A table with its own error codes, as in the service model."""

    def get(self, name: str) -> R:
        """The resource by name or ARN.

        Raises:
            ApiError: there is none (`ResourceNotFound`).
        """
        row = self.find(name.rpartition("/")[2])
        if row is None:
            raise ApiError("ResourceNotFound", f'Could not find {self.kind} "{self.arn(name)}".')
        return row

    def refuse_taken(self, name: str) -> None:
        """Raises ApiError (`ResourceInUse`) when the name is in use."""
        if self.find(name) is not None:
            raise ApiError("ResourceInUse", f'Cannot create already existing {self.kind} "{self.arn(name)}".')


@dataclass(frozen=True)
class BenchmarkPlan:
    """One job to run.

    Attributes:
        arguments: AIPerf's, from the workload specification.
        channels: (name, S3 URI) of each input channel.
        output: S3 URI below which the job writes.
        root: a directory of its own; ``/opt/ml`` of the job lies in it as ``opt/ml``.
    """

    job: str
    endpoint: str
    component: str | None
    arguments: tuple[str, ...]
    channels: tuple[tuple[str, str], ...]
    output: str
    root: Path


class BenchmarkRunner(Protocol):
    """Runs jobs, as `sagemaker_local.runtime.benchmark_run.AiperfRunner` does."""

    async def run(self, plan: BenchmarkPlan) -> str | None:
        """Run a job to its end; return None, or why it failed. Cancelling ends its processes."""
        ...


log = logging.getLogger(__name__)

LOG_GROUP = "/aws/sagemaker/AIBenchmarkJobs"
_LONGEST_REASON = 1024
Operation = Callable[[Mapping[str, Any]], Any]


class AIBenchmarks:
    """The operations; jobs run one process group each, as long as the loop does."""

    def __init__(
        self, tables: Tables, clock: LocalClock, runner: BenchmarkRunner | None, directory: Path
    ) -> None:
        """Set up with the runner (None refuses jobs) and the parent of the jobs' directories."""
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
        """Operation -> its handler."""
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
        parameters(_inline(request))
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
        """CreateAIBenchmarkJob: answers at once; the endpoint is checked when the job runs."""
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
            arguments=tuple(arguments(parameters(_inline(config)))),
            channels=tuple(
                (channel["ChannelName"], channel["DataSource"]["S3DataSource"]["S3Uri"])
                for channel in channels
            ),
            output=row.body["OutputConfig"]["S3OutputLocation"],
            root=self._directory / row.name,
        )

    def _target(self, target: Mapping[str, Any] | None) -> tuple[str, str | None]:
        """Return a job's endpoint and component; ApiError if one is missing or not in service."""
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
