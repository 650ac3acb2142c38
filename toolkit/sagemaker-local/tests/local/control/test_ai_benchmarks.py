"""AI workload configurations and AI benchmark jobs, with a runner that does as it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sagemaker_local.control import ApiError
from sagemaker_local.control import ai_benchmarks as spec
from sagemaker_local.control.ai_benchmarks import BenchmarkPlan
from tests.local.control.conftest import PREFIX, ROLE, Account, MakeAccount

SPEC = {"benchmark": {"type": "aiperf"}, "parameters": {"tokenizer": "org/model", "concurrency": 4}}


class Runner:
    """Keeps the plans; a job ends when it is told how."""

    def __init__(self) -> None:
        self.plans: list[BenchmarkPlan] = []
        self.answers: asyncio.Queue[str | None] = asyncio.Queue()
        self.cancelled = 0

    async def run(self, plan: BenchmarkPlan) -> str | None:
        self.plans.append(plan)
        try:
            return await self.answers.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def aws(make_account: MakeAccount, runner: Runner) -> Account:
    return make_account(benchmarks=runner)


async def config(aws: Account, name: str = "w", document: object = SPEC, **more: Any) -> dict[str, Any]:
    inline = document if isinstance(document, str) else json.dumps(document)
    return await aws.call(
        "CreateAIWorkloadConfig",
        AIWorkloadConfigName=name,
        AIWorkloadConfigs={"WorkloadSpec": {"Inline": inline}},
        **more,
    )


async def job(aws: Account, name: str = "j", **target: Any) -> dict[str, Any]:
    return await aws.call(
        "CreateAIBenchmarkJob",
        AIBenchmarkJobName=name,
        BenchmarkTarget={"Endpoint": {"Identifier": "e", **target}},
        OutputConfig={"S3OutputLocation": "s3://bucket/out/"},
        AIWorkloadConfigIdentifier="w",
        RoleArn=ROLE,
    )


async def described(aws: Account, status: str, name: str = "j") -> dict[str, Any]:
    async def reached() -> bool:
        answer = await aws.call("DescribeAIBenchmarkJob", AIBenchmarkJobName=name)
        return bool(answer["AIBenchmarkJobStatus"] == status)

    await aws.wait(reached, f"job status {status}")
    return await aws.call("DescribeAIBenchmarkJob", AIBenchmarkJobName=name)


async def refused(aws: Account, code: str, operation: str, **body: Any) -> str:
    with pytest.raises(ApiError) as refusal:
        await aws.call(operation, **body)
    assert refusal.value.code == code
    return refusal.value.message


async def test_a_config_comes_back_as_it_went_in_and_has_tags(aws: Account) -> None:
    made = await config(aws, Tags=[{"Key": "a", "Value": "b"}])
    assert made == {"AIWorkloadConfigArn": f"{PREFIX}:ai-workload-config/w"}
    found = await aws.call("DescribeAIWorkloadConfig", AIWorkloadConfigName="w")
    assert json.loads(found["AIWorkloadConfigs"]["WorkloadSpec"]["Inline"]) == SPEC
    assert found["Tags"] == [{"Key": "a", "Value": "b"}]
    tags = await aws.call("ListTags", ResourceArn=made["AIWorkloadConfigArn"])
    assert tags["Tags"] == found["Tags"]
    listed = await aws.call("ListAIWorkloadConfigs")
    assert [row["AIWorkloadConfigName"] for row in listed["AIWorkloadConfigs"]] == ["w"]
    assert "already existing" in await refused(
        aws,
        "ResourceInUse",
        "CreateAIWorkloadConfig",
        AIWorkloadConfigName="w",
        AIWorkloadConfigs={"WorkloadSpec": {"Inline": json.dumps(SPEC)}},
    )


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "neither JSON nor YAML"),
        ("[]", "must be a mapping"),
        ({"parameters": {}}, "benchmark/type null does not match the pattern ^(aiperf)$"),
        ({**SPEC, "bench": 1}, "unknown keys bench"),
        ({**SPEC, "parameters": {"concurency": 4}}, "unknown parameter concurency"),
        ({**SPEC, "parameters": {"concurrency": "4"}}, "concurrency must be of type Integer"),
        ({**SPEC, "parameters": {"streaming": 1}}, "streaming must be of type Boolean"),
        ({**SPEC, "parameters": {"osl": 1, "output_tokens_mean": 1}}, "given twice"),
        ({**SPEC, "parameters": {"image_width_mean": 640.0}}, "not implemented by the local SageMaker"),
        ({**SPEC, "secrets": {"hf_token": "arn"}}, "not implemented by the local SageMaker"),
    ],
)
async def test_specifications_that_aws_does_not_take(aws: Account, document: object, told: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await config(aws, document=document)
    assert refusal.value.code == "ValidationException"
    assert told in refusal.value.message


def test_a_specification_means_aiperfs_own_options() -> None:
    inline = """
    benchmark: {type: aiperf}
    parameters: {isl: 32, osl: 64, num_requests: 9, arrival_pattern: poisson, request_rate: 2.5,
                 goodput: "time_to_first_token:100 inter_token_latency:10", streaming: false}
    """
    assert spec.arguments(spec.parameters(inline)) == [
        *("--random-seed", "42"),
        *("--prompt-input-tokens-mean", "32"),
        *("--output-tokens-mean", "64"),
        *("--request-count", "9"),
        *("--arrival-pattern", "poisson"),
        *("--request-rate", "2.5"),
        *("--goodput", "time_to_first_token:100", "--goodput", "inter_token_latency:10"),
    ]


async def test_a_job_runs_to_completed(aws: Account, runner: Runner) -> None:
    await aws.serve()
    source = {"S3DataSource": {"S3Uri": "s3://bucket/in/prompts.jsonl"}}
    channel = {"ChannelName": "dataset", "DataSource": source}
    await config(aws, DatasetConfig={"InputDataConfig": [channel]})
    assert await job(aws) == {"AIBenchmarkJobArn": f"{PREFIX}:ai-benchmark-job/j"}
    running = await described(aws, "InProgress")
    assert "EndTime" not in running
    assert running["OutputConfig"]["CloudWatchLogs"][0]["LogStreamName"] == "j"
    in_use = await refused(aws, "ResourceInUse", "DeleteAIWorkloadConfig", AIWorkloadConfigName="w")
    assert in_use.endswith("is used by active jobs: j.")
    assert "while it is InProgress" in await refused(
        aws, "ValidationException", "DeleteAIBenchmarkJob", AIBenchmarkJobName="j"
    )
    runner.answers.put_nowait(None)
    ended = await described(aws, "Completed")
    assert ended["EndTime"] >= ended["StartTime"] >= ended["CreationTime"]
    (plan,) = runner.plans
    assert (plan.endpoint, plan.component, plan.output) == ("e", None, "s3://bucket/out/")
    assert plan.channels == (("dataset", "s3://bucket/in/prompts.jsonl"),)
    assert plan.arguments[-4:] == ("--tokenizer", "org/model", "--concurrency", "4")
    listed = await aws.call("ListAIBenchmarkJobs", StatusEquals="Completed")
    assert [row["AIWorkloadConfigName"] for row in listed["AIBenchmarkJobs"]] == ["w"]
    await aws.call("DeleteAIWorkloadConfig", AIWorkloadConfigName="w")
    await aws.call("DeleteAIBenchmarkJob", AIBenchmarkJobName="j")
    await refused(aws, "ResourceNotFound", "DescribeAIBenchmarkJob", AIBenchmarkJobName="j")


async def test_a_job_is_stopped(aws: Account, runner: Runner) -> None:
    await aws.serve()
    await config(aws)
    await job(aws)
    await described(aws, "InProgress")
    await aws.call("StopAIBenchmarkJob", AIBenchmarkJobName="j")
    await described(aws, "Stopped")
    assert runner.cancelled <= 1
    told = await refused(aws, "ValidationException", "StopAIBenchmarkJob", AIBenchmarkJobName="j")
    assert told.endswith("has ended: its status is Stopped.")


async def test_why_a_job_failed_is_told(aws: Account, runner: Runner) -> None:
    await aws.serve()
    await config(aws)
    runner.answers.put_nowait("AlgorithmError: " + "x" * 2000)
    await job(aws)
    failed = await described(aws, "Failed")
    assert len(failed["FailureReason"]) == 1024


async def test_a_target_that_cannot_be_benchmarked_fails_the_job(aws: Account) -> None:
    await config(aws)
    await job(aws, "nowhere")
    assert "Could not find endpoint" in (await described(aws, "Failed", "nowhere"))["FailureReason"]
    await aws.host()
    await job(aws, "direct")
    assert "No model is deployed directly" in (await described(aws, "Failed", "direct"))["FailureReason"]
    await job(aws, "several", InferenceComponents=[{"Identifier": "a"}, {"Identifier": "b"}])
    assert "one job for each" in (await described(aws, "Failed", "several"))["FailureReason"]


async def test_a_component_is_benchmarked_by_its_name_or_arn(aws: Account, runner: Runner) -> None:
    await aws.host()
    await aws.component("ic")
    await aws.until_component("InService")
    await config(aws)
    runner.answers.put_nowait(None)
    await job(aws, InferenceComponents=[{"Identifier": f"{PREFIX}:inference-component/ic"}])
    await described(aws, "Completed")
    assert [(plan.endpoint, plan.component) for plan in runner.plans] == [("e", "ic")]


async def test_a_job_needs_its_workload_config(aws: Account) -> None:
    with pytest.raises(ApiError, match="Could not find AI workload config") as refusal:
        await job(aws)
    assert refusal.value.code == "ResourceNotFound"
