"""AIPerf's archive as a job leaves it, with figures of one's own, and a SageMaker that runs such jobs."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from peagle_sm.aws.session.session import Session

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
SECOND = 1_000_000_000


def row(
    number: int,
    *,
    phase: str = "profiling",
    sent_s: float = 0.0,
    late_s: float = 0.001,
    gaps_ms: tuple[float, ...] = (10.0, 10.0, 20.0),
    tokens: int | None = 8,
    error: str | None = None,
    steps: int | None = 3,
) -> dict[str, Any]:
    """A line of profile_export.jsonl: the first token after 50 ms, then the gaps."""
    start = 1_800_000_000 * SECOND + round(sent_s * SECOND)
    latency = 50 + sum(gaps_ms) + 5
    about = {
        "conversation_id": f"{number}:p{number}",
        "benchmark_phase": phase,
        "credit_issued_ns": start - round(late_s * SECOND),
        "request_start_ns": start,
        "request_end_ns": start + round(latency * 1e6),
    }
    if error is not None:
        return {"metadata": about, "metrics": {}, "error": {"type": error, "message": "it went wrong"}}
    figures: dict[str, Any] = {
        "time_to_first_token": 50.0,
        "inter_chunk_latency": list(gaps_ms),
        "request_latency": latency,
        "output_sequence_length": 9,
        "input_sequence_length": 30,
    }
    if tokens is not None:
        figures |= {"usage_completion_tokens": tokens, "usage_prompt_tokens": 31}
    if steps is not None:
        figures |= {"spec_decode_steps": steps, "spec_decode_accepted_draft_tokens": 2 * steps}
    return {"metadata": about, "metrics": {name: {"value": value} for name, value in figures.items()}}


def archive(rows: list[dict[str, Any]], *, seconds: float = 2.0, profile: bool = True) -> bytes:
    """output.tar.gz."""
    lines = "".join(json.dumps(one) + "\n" for one in rows)
    answers = [{"conversation_id": one["metadata"]["conversation_id"], "response_text": "x"} for one in rows]
    files = {"profile_export.jsonl": lines, "outputs.json": json.dumps({"data": answers})}
    if profile:
        about = {"aiperf_version": "0.13.0", "benchmark_duration": {"avg": seconds}}
        files["profile_export_aiperf.json"] = json.dumps(about)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def error(code: str, message: str = "no", status: int = 400) -> ClientError:
    told = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "Operation")  # type: ignore[arg-type]


@dataclass
class Cloud:
    """SageMaker, S3 and Logs of one account, as far as jobs need them; its own clock.

    ``lasts_s`` is how long a job runs, ``ends`` as what; ``output`` is its archive; ``faults`` are raised, in
    their order, by the named operation.
    """

    lasts_s: float = 30.0
    ends: str = "Completed"
    reason: str | None = None
    output: Callable[[], bytes] | None = lambda: archive([row(0), row(1, sent_s=1.0)])
    stops: bool = True
    faults: dict[str, list[BaseException]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    buckets: set[str] = field(default_factory=set)
    model: dict[str, Any] | None = None
    calls: list[str] = field(default_factory=list)
    seconds: float = 0.0
    region_name: str = "us-east-1"
    on_sleep: Callable[[float], None] = lambda seconds: None

    def session(self) -> Session:
        return Session.from_boto3(self)

    def client(self, service: str, **_: Any) -> Cloud:
        return self

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.on_sleep(self.seconds)

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if self.faults.get(operation):
            raise self.faults[operation].pop(0)

    def create_ai_workload_config(self, **parameters: Any) -> None:
        self._called("create_config")
        self.configs[parameters["AIWorkloadConfigName"]] = parameters

    def delete_ai_workload_config(self, AIWorkloadConfigName: str) -> None:
        self._called("delete_config")
        if self.configs.pop(AIWorkloadConfigName, None) is None:
            raise error("ResourceNotFound")

    def create_ai_benchmark_job(self, **parameters: Any) -> None:
        assert parameters["AIWorkloadConfigIdentifier"] in self.configs
        self.jobs[parameters["AIBenchmarkJobName"]] = {**parameters, "began": self.seconds, "stop": None}
        self._called("create_job")

    def describe_ai_benchmark_job(self, AIBenchmarkJobName: str) -> dict[str, Any]:
        self._called("describe_job")
        job = self.jobs.get(AIBenchmarkJobName)
        if job is None:
            raise error("ResourceNotFound")
        ended = self.seconds >= job["began"] + self.lasts_s
        status = self.ends if ended else "InProgress"
        if job["stop"] is not None:
            status = "Stopped" if self.stops and self.seconds > job["stop"] else "Stopping"
        answer: dict[str, Any] = {"AIBenchmarkJobStatus": status, "OutputConfig": dict(job["OutputConfig"])}
        if status in ("Completed", "Failed"):
            if self.output is not None:
                uri = f"{job['OutputConfig']['S3OutputLocation']}{AIBenchmarkJobName}/output/output.tar.gz"
                self.objects[uri] = self.output()
            began = START + timedelta(seconds=job["began"])
            answer |= {"StartTime": began, "EndTime": began + timedelta(seconds=self.lasts_s)}
            answer |= {"FailureReason": self.reason} if self.reason else {}
        return answer

    def stop_ai_benchmark_job(self, AIBenchmarkJobName: str) -> None:
        self._called("stop_job")
        self.jobs[AIBenchmarkJobName]["stop"] = self.seconds

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012"}

    def describe_endpoint(self, EndpointName: str) -> dict[str, Any]:
        return {"EndpointArn": "arn", "EndpointStatus": "InService", "EndpointConfigName": EndpointName}

    def describe_endpoint_config(self, EndpointConfigName: str) -> dict[str, Any]:
        variant = {"VariantName": "v"} if self.model is None else {"VariantName": "v", "ModelName": "m"}
        return {"EndpointConfigArn": "arn", "ProductionVariants": [variant]}

    def describe_model(self, ModelName: str) -> dict[str, Any]:
        return {"ModelArn": "arn", **(self.model or {})}

    def head_bucket(self, Bucket: str, ExpectedBucketOwner: str) -> None:
        if Bucket not in self.buckets:
            raise error("404", status=404)

    def create_bucket(self, Bucket: str) -> None:
        self.buckets.add(Bucket)

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[f"s3://{Bucket}/{Key}"] = Body

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.objects[f"s3://{Bucket}/{Key}"])}

    def delete_objects(self, Bucket: str, Delete: dict[str, Any]) -> None:
        for one in Delete["Objects"]:
            del self.objects[f"s3://{Bucket}/{one['Key']}"]

    def get_paginator(self, operation: str) -> Cloud:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        start = f"s3://{Bucket}/"
        keys = [uri.removeprefix(start) for uri in self.objects if uri.startswith(f"{start}{Prefix}")]
        return [{"Contents": [{"Key": key} for key in keys]}]
