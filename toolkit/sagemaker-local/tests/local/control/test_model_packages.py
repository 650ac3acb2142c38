"""Model package groups and their versions, as SageMaker's Model Registry keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from sagemaker_local.control import ApiError
from tests.local.control.conftest import IMAGE, PREFIX, Account

GROUP = f"{PREFIX}:model-package-group/heads"
ONE = f"{PREFIX}:model-package/heads/1"
SOURCE = {"S3DataSource": {"S3Uri": "s3://b/target/", "S3DataType": "S3Prefix", "CompressionType": "None"}}
CONTAINER = {"Image": IMAGE, "ModelDataSource": SOURCE, "Environment": {"SM_VLLM_MODEL": "/opt/ml/model"}}


async def registered(aws: Account, **more: Any) -> str:
    asked = {"ModelPackageGroupName": "heads", "InferenceSpecification": {"Containers": [CONTAINER]}, **more}
    return str((await aws.call("CreateModelPackage", **asked))["ModelPackageArn"])


@pytest.fixture
async def group(aws: Account) -> Account:
    made = await aws.call("CreateModelPackageGroup", ModelPackageGroupName="heads")
    assert made == {"ModelPackageGroupArn": GROUP}
    return aws


async def test_versions_are_numbered_and_a_deleted_one_s_number_is_not_given_again(group: Account) -> None:
    assert await registered(group) == ONE
    assert await registered(group) == f"{PREFIX}:model-package/heads/2"
    await group.call("DeleteModelPackage", ModelPackageName=f"{PREFIX}:model-package/heads/2")
    assert await registered(group, ModelPackageGroupName=GROUP) == f"{PREFIX}:model-package/heads/3"
    listed = await group.call("ListModelPackages", ModelPackageGroupName="heads")
    rows = listed["ModelPackageSummaryList"]
    assert [row["ModelPackageVersion"] for row in rows] == [3, 1]
    assert {row["ModelApprovalStatus"] for row in rows} == {"PendingManualApproval"}
    assert (await group.call("ListModelPackages"))["ModelPackageSummaryList"] == []
    versions = await group.call("ListModelPackages", ModelPackageType="Versioned", MaxResults=1)
    assert len(versions["ModelPackageSummaryList"]) == 1
    assert "NextToken" in versions


async def test_a_version_comes_back_as_it_went_in(group: Account) -> None:
    told = {"head": "0" * 64, "held_out.acceptance_ratio": "1.101 from 1.052 to 1.150"}
    arn = await registered(
        group,
        ModelApprovalStatus="Approved",
        ModelPackageDescription="a head",
        CustomerMetadataProperties=told,
    )
    found = await group.call("DescribeModelPackage", ModelPackageName=arn)
    assert found["InferenceSpecification"] == {"Containers": [CONTAINER]}
    assert found["CustomerMetadataProperties"] == told
    assert (found["ModelApprovalStatus"], found["ModelPackageStatus"]) == ("Approved", "Completed")
    assert (found["ModelPackageGroupName"], found["ModelPackageVersion"]) == ("heads", 1)
    assert "LastModifiedTime" not in found


async def test_the_same_client_token_registers_once(group: Account) -> None:
    first = await registered(group, ClientToken="t1")
    assert await registered(group, ClientToken="t1") == first
    assert await registered(group, ClientToken="t2") != first


async def test_an_update_sets_status_and_properties(group: Account) -> None:
    arn = await registered(group, CustomerMetadataProperties={"a": "1", "b": "2"})
    await group.call(
        "UpdateModelPackage",
        ModelPackageArn=arn,
        ModelApprovalStatus="Rejected",
        ApprovalDescription="rolled back",
        CustomerMetadataProperties={"c": "3"},
        CustomerMetadataPropertiesToRemove=["a"],
    )
    found = await group.call("DescribeModelPackage", ModelPackageName=arn)
    assert (found["ModelApprovalStatus"], found["ApprovalDescription"]) == ("Rejected", "rolled back")
    assert found["CustomerMetadataProperties"] == {"b": "2", "c": "3"}
    assert found["LastModifiedTime"] >= found["CreationTime"]
    rejected = await group.call(
        "ListModelPackages", ModelPackageGroupName="heads", ModelApprovalStatus="Rejected"
    )
    assert len(rejected["ModelPackageSummaryList"]) == 1
    many = {f"k{number}": "v" for number in range(49)}
    await group.refused(
        f"{arn} would have 51 customer metadata properties; at most 50 are allowed.",
        "UpdateModelPackage",
        ModelPackageArn=arn,
        CustomerMetadataProperties=many,
    )


async def test_a_group_is_described_listed_tagged_and_deleted_when_it_is_empty(group: Account) -> None:
    found = await group.call("DescribeModelPackageGroup", ModelPackageGroupName=GROUP)
    assert (found["ModelPackageGroupName"], found["ModelPackageGroupStatus"]) == ("heads", "Completed")
    await group.call("AddTags", ResourceArn=GROUP, Tags=[{"Key": "team", "Value": "a"}])
    assert (await group.call("ListTags", ResourceArn=GROUP))["Tags"] == [{"Key": "team", "Value": "a"}]
    arn = await registered(group)
    with pytest.raises(ApiError) as refusal:
        await group.call("DeleteModelPackageGroup", ModelPackageGroupName="heads")
    assert refusal.value.code == "ConflictException"
    await group.call("DeleteModelPackage", ModelPackageName=arn)
    await group.call("DeleteModelPackageGroup", ModelPackageGroupName="heads")
    listed = await group.call("ListModelPackageGroups")
    assert listed["ModelPackageGroupSummaryList"] == []


async def test_what_does_not_exist_and_what_exists_already(group: Account) -> None:
    await group.refused(
        f"Model Package Group already exists: {GROUP}",
        "CreateModelPackageGroup",
        ModelPackageGroupName="Heads",
    )
    missing = f"{PREFIX}:model-package-group/others"
    for operation in ("DescribeModelPackageGroup", "DeleteModelPackageGroup"):
        for name in ("others", missing):
            await group.refused(
                f"ModelPackageGroup {missing} does not exist.", operation, ModelPackageGroupName=name
            )
    foreign = GROUP.replace("123456789012", "210987654321")
    await group.refused(
        f"ModelPackageGroup {foreign} does not exist.",
        "CreateModelPackage",
        ModelPackageGroupName=foreign,
        InferenceSpecification={"Containers": [CONTAINER]},
    )
    await group.refused(f"ModelPackage {ONE} does not exist.", "DescribeModelPackage", ModelPackageName=ONE)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"ModelPackageName": "a"},
        "Both ModelPackageName and ModelPackageGroupName are provided in the input. Cannot determine which "
        "one to use.",
    ),
    ({"ModelPackageGroupName": None}, "Missing ARN."),
    (
        {"Tags": [{"Key": "a", "Value": "b"}]},
        "Tags cannot be given with ModelPackageGroupName: a version has those of its group.",
    ),
    (
        {"InferenceSpecification": None},
        "A model package needs an InferenceSpecification: found none.",
    ),
    (
        {
            "InferenceSpecification": {
                "Containers": [{**CONTAINER, "Environment": {f"A{number}": "" for number in range(17)}}]
            }
        },
        "Environment of a model package has 17 entries; at most 16 are allowed.",
    ),
]


@pytest.mark.parametrize(("changed", "told"), REFUSED)
async def test_versions_that_are_refused(group: Account, changed: dict[str, Any], told: str) -> None:
    asked = {"ModelPackageGroupName": "heads", "InferenceSpecification": {"Containers": [CONTAINER]}}
    body = {key: value for key, value in {**asked, **changed}.items() if value is not None}
    await group.refused(told, "CreateModelPackage", **body)


@pytest.mark.parametrize("value", ["[1.05, 1.15]", "x" * 257, "a,b"])
async def test_a_property_that_the_model_does_not_allow(group: Account, value: str) -> None:
    with pytest.raises(ApiError, match="customerMetadataProperties") as refusal:
        await registered(group, CustomerMetadataProperties={"a": value})
    assert refusal.value.code == "ValidationException"
