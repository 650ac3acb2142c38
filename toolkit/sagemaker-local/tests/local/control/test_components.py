"""Inference components: created, described, listed, scaled, updated, deleted; each with its own engine."""

import asyncio
import json
import os
import urllib.request
from typing import Any

import pytest

from sagemaker_local.control import ApiError
from tests.local.control.conftest import IMAGE, PREFIX, Account, specification
from tests.local.control.test_records import fits

ARN = f"{PREFIX}:inference-component/ic"
NO_CAPACITY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress "
    "(if configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
)


async def answer(aws: Account, component: str) -> dict[str, Any]:
    """What the component's engine says to a request."""
    url = aws.plane.route("e", component=component).engine_url + "/invocations"

    def ask() -> bytes:
        with urllib.request.urlopen(url, data=b"{}", timeout=5) as got:
            return bytes(got.read())

    return dict(json.loads(await asyncio.to_thread(ask)))


async def scale(aws: Account, copies: int, name: str = "ic") -> dict[str, Any]:
    return await aws.call(
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName=name,
        DesiredRuntimeConfig={"CopyCount": copies},
    )


async def test_creating_until_its_engine_answers_then_in_service(aws: Account) -> None:
    await aws.host()
    assert aws.launcher.processes == []
    await aws.model("slow", SCRIPT_PING="never", SCRIPT_VERSION="one")
    assert await aws.component(model="slow") == {"InferenceComponentArn": ARN}
    creating = await aws.describe_component()
    fits("DescribeInferenceComponent", creating)
    assert creating["InferenceComponentStatus"] == "Creating"
    assert creating["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 0}
    await aws.tell("ready")
    served = await aws.until_component("InService")
    fits("DescribeInferenceComponent", served)
    assert served["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    assert served["Specification"] == specification("slow")
    assert (served["EndpointName"], served["EndpointArn"]) == ("e", f"{PREFIX}:endpoint/e")
    assert (await answer(aws, "ic"))["version"] == "one"
    assert aws.component_statuses() == ["Creating", "InService"]
    assert aws.statuses() == ["Creating", "InService"]


async def test_a_component_by_container(aws: Account) -> None:
    await aws.host()
    container = {"Image": IMAGE, "Environment": {"SCRIPT_VERSION": "boxed"}, "ArtifactUrl": "s3://b/m.tar.gz"}
    request = {"Container": container, "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 512}}
    await aws.call(
        "CreateInferenceComponent",
        InferenceComponentName="ic",
        EndpointName="e",
        VariantName="AllTraffic",
        Specification=request,
    )
    served = await aws.until_component("InService")
    fits("DescribeInferenceComponent", served)
    report = served["Specification"]["Container"]
    assert report["DeployedImage"]["SpecifiedImage"] == IMAGE
    assert (report["Environment"], report["ArtifactUrl"]) == (
        container["Environment"],
        container["ArtifactUrl"],
    )
    assert (await answer(aws, "ic"))["version"] == "boxed"
    assert aws.launcher.requests[0].model_sources == [("/opt/ml/model", "s3://b/m.tar.gz")]


async def test_failed_with_the_engines_last_words_when_it_does_not_come_up(aws: Account) -> None:
    await aws.host()
    await aws.model("broken", SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0", SCRIPT_EXIT_LINE="bad flag")
    await aws.component(model="broken")
    failed = await aws.until_component("Failed")
    fits("DescribeInferenceComponent", failed)
    assert failed["FailureReason"].startswith("The primary container for inference component ic did not pass")
    assert failed["FailureReason"].endswith("bad flag")
    assert await aws.status() == "InService"
    await refused_invocation(aws, NO_CAPACITY)
    assert await aws.call("DeleteInferenceComponent", InferenceComponentName="ic") == {}


async def test_an_engine_that_dies_in_service_fails_the_component_and_not_the_endpoint(aws: Account) -> None:
    await aws.host()
    await aws.component("ic")
    await aws.component("other")
    await aws.until_component("InService")
    await aws.until_component("InService", "other")
    pid = (await answer(aws, "ic"))["pid"]
    os.kill(pid, 9)
    failed = await aws.until_component("Failed")
    assert failed["FailureReason"].startswith("The container of inference component ic died")
    assert await aws.status() == "InService"
    assert (await answer(aws, "other"))["pid"] != pid


async def test_more_copies_share_the_engine_and_none_stops_it(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    assert await scale(aws, 3) == {"InferenceComponentArn": ARN}
    assert (await aws.describe_component())["InferenceComponentStatus"] == "Updating"
    wide = await aws.until_component("InService")
    assert wide["RuntimeConfig"] == {"DesiredCopyCount": 3, "CurrentCopyCount": 3}
    assert len(aws.launcher.running) == 1
    (row,) = aws.plane.describe_engines()
    assert row["notes"] == ["3 copies asked for, one engine serves"]
    await scale(aws, 0)
    asleep = await aws.until_component("InService")
    assert asleep["RuntimeConfig"] == {"DesiredCopyCount": 0, "CurrentCopyCount": 0}
    await aws.wait(lambda: running(aws, 0), "the engine's end")
    await refused_invocation(aws, NO_CAPACITY)
    await scale(aws, 1)
    await aws.until_component("InService")
    assert (await answer(aws, "ic"))["pid"]


async def test_a_server_that_ends_takes_an_engine_along_that_was_about_to_end(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    await scale(aws, 0)
    while (await aws.describe_component())["InferenceComponentStatus"] != "InService":
        await asyncio.sleep(0)
    await aws.plane.close()
    assert aws.launcher.running == []


async def test_copies_beyond_the_instances_wait_for_capacity(aws: Account) -> None:
    await aws.host()
    await aws.component(gpus=3)
    await aws.until_component("InService")
    await scale(aws, 4)
    served = await aws.until_component("InService")
    assert served["RuntimeConfig"] == {"DesiredCopyCount": 4, "CurrentCopyCount": 2}


@pytest.mark.parametrize(("gpus", "copies"), [(9, 1), (5, 2)])
async def test_accelerators_that_the_instances_do_not_have_fail_the_component(
    aws: Account, gpus: int, copies: int
) -> None:
    await aws.host()
    await aws.component(gpus=gpus, copies=copies)
    failed = await aws.until_component("Failed")
    assert failed["FailureReason"].startswith(
        "There is not enough hardware resources on the instances for this endpoint to create a copy of the "
        f"inference component. Asked: {copies} x {gpus} accelerators. ml.p5.48xlarge has 8"
    )
    assert aws.launcher.requests == []


async def test_what_others_occupy_is_not_there_and_comes_back_with_their_end(aws: Account) -> None:
    await aws.host(InstanceType="ml.g7e.2xlarge")
    await aws.component("first")
    await aws.until_component("InService", "first")
    await aws.component("second")
    assert "0 copies still fit" in (await aws.until_component("Failed", "second"))["FailureReason"]
    await aws.call("DeleteInferenceComponent", InferenceComponentName="first")
    await aws.call("DeleteInferenceComponent", InferenceComponentName="second")
    await aws.until_gone("first")
    await aws.until_gone("second")
    await aws.component("second")
    await aws.until_component("InService", "second")


async def test_an_update_puts_a_new_engine_in_the_old_ones_place(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    old = (await answer(aws, "ic"))["pid"]
    await aws.model("next", SCRIPT_PING="never", SCRIPT_VERSION="next")
    policy = {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
            "WaitIntervalInSeconds": 0,
        }
    }
    await aws.call(
        "UpdateInferenceComponent",
        InferenceComponentName="ic",
        Specification=specification("next"),
        DeploymentConfig=policy,
    )
    assert (await answer(aws, "ic"))["pid"] == old
    await aws.tell("ready", 1)
    served = await aws.until_component("InService")
    fits("DescribeInferenceComponent", served)
    assert served["Specification"]["ModelName"] == "next"
    assert served["LastDeploymentConfig"] == policy
    assert (await answer(aws, "ic"))["version"] == "next"
    await aws.wait(lambda: running(aws, 1), "the old engine's end")


async def test_an_update_that_fails_leaves_the_old_engine_and_specification(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.until_component("InService")
    await aws.model("broken", SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0", SCRIPT_EXIT_LINE="bad flag")
    await aws.call(
        "UpdateInferenceComponent", InferenceComponentName="ic", Specification=specification("broken")
    )
    served = await aws.until_component("InService")
    assert served["Specification"]["ModelName"] == "m"
    assert "FailureReason" not in served
    assert (await answer(aws, "ic"))["pid"]
    (row,) = aws.plane.describe_engines()
    assert "bad flag" in row["last_update_failure"]


async def test_a_component_in_progress_refuses_updates_and_deletion(aws: Account) -> None:
    await aws.host()
    await aws.model("slow", SCRIPT_PING="never")
    await aws.component(model="slow")
    await refused_while(aws, "CREATE_IN_PROGRESS")
    await aws.tell("ready")
    await aws.until_component("InService")
    await scale(aws, 2)
    await refused_while(aws, "UPDATE_RC_IN_PROGRESS")
    await aws.until_component("InService")
    await aws.call("DeleteInferenceComponent", InferenceComponentName="ic")
    assert (await aws.describe_component())["InferenceComponentStatus"] == "Deleting"
    await refused_while(aws, "DELETE_IN_PROGRESS")
    await aws.until_gone()
    assert aws.launcher.running == []
    missing = f'Could not find inference component "{ARN}".'
    await aws.refused(missing, "DescribeInferenceComponent", InferenceComponentName="ic")


async def test_lists_are_filtered_and_paged(aws: Account) -> None:
    await aws.host(InstanceType="ml.m5.large")
    for number in range(11):
        await aws.call(
            "CreateInferenceComponent",
            InferenceComponentName=f"ic-{number}",
            EndpointName="e",
            VariantName="AllTraffic",
            Specification={"ModelName": "m", "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128}},
        )
    first = await aws.call("ListInferenceComponents")
    fits("ListInferenceComponents", first)
    assert [row["InferenceComponentName"] for row in first["InferenceComponents"]] == [
        f"ic-{number}" for number in range(10, 0, -1)
    ]
    rest = await aws.call("ListInferenceComponents", NextToken=first["NextToken"])
    assert [row["InferenceComponentName"] for row in rest["InferenceComponents"]] == ["ic-0"]
    filters: list[dict[str, str]] = [
        {"EndpointNameEquals": "other"},
        {"VariantNameEquals": "Other"},
        {"StatusEquals": "Failed"},
        {"NameContains": "zz"},
    ]
    for each in filters:
        assert (await aws.call("ListInferenceComponents", **each))["InferenceComponents"] == []
    mine = await aws.call("ListInferenceComponents", EndpointNameEquals="e", MaxResults=100)
    assert len(mine["InferenceComponents"]) == 11


async def test_tags_of_a_component(aws: Account) -> None:
    await aws.host()
    await aws.component()
    await aws.call("AddTags", ResourceArn=ARN, Tags=[{"Key": "team", "Value": "x"}])
    assert (await aws.call("ListTags", ResourceArn=ARN))["Tags"] == [{"Key": "team", "Value": "x"}]


async def test_managed_instances_follow_the_copies_down_to_none(aws: Account) -> None:
    scaling = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
    await aws.host(ManagedInstanceScaling=scaling)
    assert await instances(aws) == 1
    await aws.component(gpus=4, copies=4)
    await aws.until_component("InService")
    assert await instances(aws) == 2
    await scale(aws, 1)
    await aws.until_component("InService")
    assert await instances(aws) == 1
    await scale(aws, 0)
    await aws.until_component("InService")
    assert await instances(aws) == 0
    fits("DescribeEndpoint", await aws.describe())


async def instances(aws: Account) -> int:
    (variant,) = (await aws.describe())["ProductionVariants"]
    assert variant.keys() <= {
        "VariantName",
        "CurrentInstanceCount",
        "DesiredInstanceCount",
        "ManagedInstanceScaling",
    }
    return int(variant["CurrentInstanceCount"])


async def refused_while(aws: Account, state: str) -> None:
    def told(verb: str) -> str:
        return f'Cannot {verb} inference component "{ARN}" while it is in state {state}.'

    await aws.refused(told("delete"), "DeleteInferenceComponent", InferenceComponentName="ic")
    await aws.refused(
        told("update"),
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName="ic",
        DesiredRuntimeConfig={"CopyCount": 1},
    )
    await aws.refused(
        told("update"),
        "UpdateInferenceComponent",
        InferenceComponentName="ic",
        Specification=specification(),
    )


async def refused_invocation(aws: Account, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        aws.plane.route("e", component="ic")
    assert (refusal.value.code, refusal.value.message) == ("ValidationError", message)


async def running(aws: Account, count: int) -> bool:
    return len(aws.launcher.running) == count
