"""From CreateEndpoint to InService or Failed."""

import asyncio

import pytest

from sagemaker_local.control import ApiError
from sagemaker_local.control.engines import engine_plan
from tests.local.control.conftest import IMAGE, PREFIX, Account, MakeAccount
from tests.local.scripted_engine import ScriptedLauncher

NO_PING = (
    "The primary container for production variant AllTraffic did not pass the ping health check. "
    "Please check CloudWatch logs for this endpoint."
)


async def test_creating_until_ping_answers_then_in_service(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config()
    assert await aws.endpoint() == {"EndpointArn": f"{PREFIX}:endpoint/e"}
    creating = await aws.describe()
    assert creating["EndpointStatus"] == "Creating"
    assert "ProductionVariants" not in creating
    assert creating["PendingDeploymentSummary"]["EndpointConfigName"] == "c"
    await aws.tell("ready")
    served = await aws.until("InService")
    assert served["EndpointConfigName"] == "c"
    assert "FailureReason" not in served
    assert "PendingDeploymentSummary" not in served
    (variant,) = served["ProductionVariants"]
    assert variant["VariantName"] == "AllTraffic"
    assert variant["CurrentWeight"] == variant["DesiredWeight"] == 1.0
    assert variant["CurrentInstanceCount"] == variant["DesiredInstanceCount"] == 1
    assert variant["DeployedImages"][0]["SpecifiedImage"] == IMAGE
    assert served["LastModifiedTime"] > served["CreationTime"]
    assert aws.statuses() == ["Creating", "InService"]


async def test_failed_when_ping_does_not_answer_in_time_by_the_local_clock(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config(ContainerStartupHealthCheckTimeoutInSeconds=60)
    await aws.endpoint()
    await aws.tell("hello")
    assert await aws.status() == "Creating"
    aws.clock.advance(60)
    failed = await aws.until("Failed")
    assert failed["FailureReason"].startswith(f"{NO_PING} It did not answer /ping within 60 s.")
    assert "scripted engine" in failed["FailureReason"]
    assert "ProductionVariants" not in failed
    assert aws.launcher.running == []


async def test_failed_with_the_engines_last_words_when_it_exits(aws: Account) -> None:
    await aws.model(
        SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0", SCRIPT_EXIT_CODE="3", SCRIPT_EXIT_LINE="CUDA error: boom"
    )
    await aws.config()
    await aws.endpoint()
    failed = await aws.until("Failed")
    assert failed["FailureReason"].startswith(f"{NO_PING} It exited with status 3. Its last words: ")
    assert failed["FailureReason"].endswith("CUDA error: boom")


async def test_long_last_words_are_cut_to_awss_limit_and_keep_their_end(aws: Account) -> None:
    line = "x" * 1000 + " the error"
    await aws.model(SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0", SCRIPT_EXIT_LINE=line)
    await aws.config()
    await aws.endpoint()
    reason = (await aws.until("Failed"))["FailureReason"]
    assert len(reason) == 1024
    assert reason.startswith(NO_PING)
    assert reason.endswith("the error")


async def test_a_launch_that_is_refused_says_why(make_account: MakeAccount) -> None:
    async def refuse(request: object) -> None:
        raise LookupError("there is nothing at s3://b/head/")

    aws = make_account(launcher=ScriptedLauncher(refuse))
    await aws.model()
    await aws.config()
    await aws.endpoint()
    failed = await aws.until("Failed")
    assert failed["FailureReason"] == (
        "The primary container for production variant AllTraffic could not be started: "
        "there is nothing at s3://b/head/"
    )


async def test_a_download_that_takes_too_long_fails(make_account: MakeAccount) -> None:
    begun = asyncio.Event()

    async def dawdle(request: object) -> None:
        begun.set()
        await asyncio.sleep(600)

    aws = make_account(launcher=ScriptedLauncher(dawdle))
    await aws.model()
    await aws.config(ModelDataDownloadTimeoutInSeconds=120)
    await aws.endpoint()
    await begun.wait()
    aws.clock.advance(120)
    failed = await aws.until("Failed")
    assert "was not downloaded within 120 s" in failed["FailureReason"]


async def test_two_endpoints_run_two_engines(aws: Account) -> None:
    await aws.serve("one")
    await aws.endpoint("two", "c")
    await aws.until("InService", "two")
    urls = {aws.plane.route(name).engine_url for name in ("one", "two")}
    assert len(urls) == 2
    assert len(aws.launcher.running) == 2


async def test_one_variant_that_fails_brings_the_others_down(aws: Account) -> None:
    await aws.model("good")
    await aws.model("bad", SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.2")
    await aws.config("c", "good", "bad")
    await aws.endpoint()
    failed = await aws.until("Failed")
    assert "production variant Variant1" in failed["FailureReason"]
    assert aws.launcher.running == []


async def test_several_instances_are_recorded_and_one_engine_serves(aws: Account) -> None:
    await aws.model()
    await aws.config(InitialInstanceCount=3)
    await aws.endpoint()
    served = await aws.until("InService")
    assert served["ProductionVariants"][0]["CurrentInstanceCount"] == 3
    assert len(aws.launcher.running) == 1
    (row,) = aws.plane.describe_engines()
    assert row["notes"] == ["3 instances asked for, one engine serves"]


async def test_a_prefix_is_never_a_compressed_archive(aws: Account) -> None:
    source = {"S3DataType": "S3Prefix", "CompressionType": "Gzip", "S3Uri": "s3://b/target/"}
    container = {"Image": IMAGE, "ModelDataSource": {"S3DataSource": source}}
    with pytest.raises(ApiError, match="S3Prefix needs None"):
        await aws.call("CreateModel", ModelName="m", PrimaryContainer=container)


async def test_the_engine_gets_what_create_model_said(aws: Account) -> None:
    source = {"S3DataType": "S3Prefix", "CompressionType": "None"}
    await aws.call(
        "CreateModel",
        ModelName="m",
        PrimaryContainer={
            "Image": IMAGE,
            "Environment": {"SM_VLLM_MAX_MODEL_LEN": "8192"},
            "ModelDataSource": {"S3DataSource": {**source, "S3Uri": "s3://b/target/"}},
            "AdditionalModelDataSources": [
                {"ChannelName": "eagle", "S3DataSource": {**source, "S3Uri": "s3://b/head/"}}
            ],
        },
    )
    await aws.config()
    await aws.endpoint()
    await aws.until("InService")
    (request,) = aws.launcher.requests
    assert request.image == IMAGE
    assert request.environment == {"SM_VLLM_MAX_MODEL_LEN": "8192"}
    assert request.model_sources == [
        ("/opt/ml/model", "s3://b/target/"),
        ("/opt/ml/additional-model-data-sources/eagle", "s3://b/head/"),
    ]
    assert request.root.is_dir()


async def test_create_refuses_a_taken_name_and_a_missing_config(aws: Account) -> None:
    await aws.serve("Name")
    for name, config, message in (
        ("name", "c", f'Cannot create already existing endpoint "{PREFIX}:endpoint/name".'),
        ("other", "nope", f'Could not find endpoint configuration "{PREFIX}:endpoint-config/nope".'),
    ):
        await aws.refused(message, "CreateEndpoint", EndpointName=name, EndpointConfigName=config)


async def test_create_refuses_a_config_whose_model_is_gone(aws: Account) -> None:
    await aws.model()
    await aws.config()
    await aws.call("DeleteModel", ModelName="m")
    missing = f'Could not find model "{PREFIX}:model/m".'
    await aws.refused(missing, "CreateEndpoint", EndpointName="e", EndpointConfigName="c")


def test_the_limit_is_four_minutes_unless_the_variant_says_otherwise() -> None:
    variant = {"VariantName": "A", "ModelName": "m"}
    model = {"PrimaryContainer": {"Image": IMAGE}}
    assert engine_plan(variant, model).startup_timeout_s == 240
    total = variant | {"ContainerStartupHealthCheckTimeoutInSeconds": 3600}
    assert engine_plan(total, model).startup_timeout_s == 3600
