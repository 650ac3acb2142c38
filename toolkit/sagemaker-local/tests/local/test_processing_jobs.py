"""Processing jobs over HTTP with boto3, written from AWS's public documentation; a small program processes.

"Guide" is the SageMaker developer guide, "model" SageMaker's service model as botocore ships it.
"""

from __future__ import annotations

import itertools
import json
import urllib.request
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from sagemaker_local.process import client
from tests.local.serving import Server, eventually

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/peagle-prepare:cpu"
GROUP = "/aws/sagemaker/ProcessingJobs"
BUCKET = "processing-jobs"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}
_numbers = itertools.count(1)
#: Writes what it was given; does as its arguments say.
PROGRAM = """
import json, os, pathlib, sys, time
root = pathlib.Path(os.environ["PEAGLE_ML_ROOT"])
config = {each.stem: json.loads(each.read_text()) for each in (root / "config").iterdir()}
host = config["resourceconfig"]["current_host"]
print("arguments", *sys.argv[1:], flush=True)
files = sorted(str(each.relative_to(root)) for each in root.glob("processing/input/data/*"))
told = {"config": config, "files": files, "arguments": sys.argv[1:], "environ": dict(os.environ)}
out = root / "processing/output"
(out / f"{host}.json").write_text(json.dumps(told))
(out / "link").symlink_to(out / f"{host}.json")
if "message" in sys.argv:
    (root / "output/message").write_text(f"{host} said so. ")
if "hold" in sys.argv:
    print("holding", flush=True)
    time.sleep(600)
sys.exit(3 if f"fail-{host}" in sys.argv else 0)
"""


class Account:
    """What the tests ask of the local AWS."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sagemaker = server.client("sagemaker")
        config = Config(parameter_validation=False, retries={"max_attempts": 1})
        keys = {"region_name": "us-east-1", "aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.unchecked: Any = boto3.client("sagemaker", endpoint_url=server.url, config=config, **keys)  # type: ignore[call-overload]
        self.s3 = server.client("s3")
        self.s3.create_bucket(Bucket=BUCKET)
        self.s3.put_object(Bucket=BUCKET, Key="code/run.py", Body=PROGRAM.encode())
        for number in range(7):
            self.s3.put_object(Bucket=BUCKET, Key=f"data/{number}.txt", Body=b"x")

    def input(self, name: str, **more: Any) -> dict[str, Any]:
        source = {
            "S3Uri": f"s3://{BUCKET}/{name}/",
            "LocalPath": f"/opt/ml/processing/input/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
        }
        return {"InputName": name, "S3Input": {**source, **more}}

    def request(self, *arguments: str, count: int = 1, mode: str = "EndOfJob", **more: Any) -> dict[str, Any]:
        name = f"job-{next(_numbers)}"
        cluster = {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 10}
        output = {
            "S3Uri": f"s3://{BUCKET}/out/{name}",
            "LocalPath": "/opt/ml/processing/output",
            "S3UploadMode": mode,
        }
        return {
            "ProcessingJobName": name,
            "RoleArn": self.server.status.role_arn,
            "AppSpecification": {
                "ImageUri": IMAGE,
                "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/run.py"],
                "ContainerArguments": [*arguments, "--"],
            },
            "ProcessingInputs": [
                self.input("code"),
                self.input("data", S3DataDistributionType="ShardedByS3Key"),
            ],
            "ProcessingOutputConfig": {"Outputs": [{"OutputName": "o", "S3Output": output}]},
            "ProcessingResources": {"ClusterConfig": cluster},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            **more,
        }

    def create(self, *arguments: str, **more: Any) -> str:
        request = self.request(*arguments, **more)
        self.sagemaker.create_processing_job(**request)
        return str(request["ProcessingJobName"])

    def describe(self, name: str) -> dict[str, Any]:
        return dict(self.sagemaker.describe_processing_job(ProcessingJobName=name))

    def ended(self, name: str) -> dict[str, Any]:
        def done() -> dict[str, Any] | None:
            found = self.describe(name)
            return None if found["ProcessingJobStatus"] in ("InProgress", "Stopping") else found

        ended: dict[str, Any] = eventually(done, seconds=60)
        return ended

    def left(self, name: str) -> dict[str, Any]:
        rows = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"out/{name}/").get("Contents", [])
        return {
            row["Key"].rpartition("/")[2]: json.loads(
                self.s3.get_object(Bucket=BUCKET, Key=row["Key"])["Body"].read()
            )
            for row in rows
        }

    def refused(self, request: dict[str, Any]) -> tuple[str, str]:
        with pytest.raises(ClientError) as caught:
            self.unchecked.create_processing_job(**request)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]


@pytest.fixture(scope="module")
def account(server: Server) -> Account:
    return Account(server)


def test_three_instances_have_shares_by_key_and_all_of_what_is_replicated(account: Account) -> None:
    """Guide: "How Amazon SageMaker Processing Configures Your Processing Container"."""
    name = account.create("one", "two", "message", count=3)
    done = account.ended(name)
    assert done["ProcessingJobStatus"] == "Completed", done
    left = account.left(name)
    hosts = ["algo-1", "algo-2", "algo-3"]
    assert sorted(left) == [f"{host}.json" for host in hosts], "no links are uploaded"
    shares = [left[f"{host}.json"]["files"] for host in hosts]
    assert [len(each) for each in shares] == [3, 2, 2]
    assert sorted(itertools.chain(*shares)) == [f"processing/input/data/{number}.txt" for number in range(7)]
    for host in hosts:
        told = left[f"{host}.json"]
        assert told["config"]["resourceconfig"] == {"current_host": host, "hosts": hosts}
        config = told["config"]["processingjobconfig"]
        assert config["ProcessingJobArn"] == done["ProcessingJobArn"]
        assert config["ProcessingInputs"] == done["ProcessingInputs"]
        assert told["arguments"] == ["one", "two", "message", "--"]
        assert told["environ"]["PROCESSING_JOB_ARN"] == done["ProcessingJobArn"]
        assert "AWS_ACCESS_KEY_ID" not in told["environ"]
    assert done["ExitMessage"] == "algo-1 said so. algo-2 said so. algo-3 said so. "
    assert done["ProcessingStartTime"] < done["ProcessingEndTime"]


def test_a_container_that_fails_fails_the_job_and_leaves_nothing(account: Account) -> None:
    name = account.create("message", "fail-algo-2", count=2)
    done = account.ended(name)
    assert done["ProcessingJobStatus"] == "Failed"
    assert done["FailureReason"] == "AlgorithmError: See job logs for more information"
    assert "algo-2 said so." in done["ExitMessage"]
    assert account.left(name) == {}


def test_a_stop_and_the_maximum_run_time_end_the_processes(account: Account) -> None:
    stopped = account.create("hold", mode="Continuous")
    eventually(lambda: any("holding" in line for line in lines(account, stopped)))
    assert account.describe(stopped)["ProcessingJobStatus"] == "InProgress"
    eventually(lambda: account.left(stopped), seconds=20)
    account.sagemaker.stop_processing_job(ProcessingJobName=stopped)
    assert account.ended(stopped)["ProcessingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="in status Stopped"):
        account.sagemaker.stop_processing_job(ProcessingJobName=stopped)
    late = account.create("hold")
    eventually(lambda: any("holding" in line for line in lines(account, late)))
    client.advance_clock(account.server.status.port, 3700)
    done = account.ended(late)
    assert (done["ProcessingJobStatus"], account.left(late)) == ("Stopped", {})


def lines(account: Account, name: str) -> list[str]:
    logs = account.server.client("logs")
    try:
        events = logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["events"]
    except ClientError:
        return []
    return [event["message"] for event in events if event["logStreamName"].startswith(f"{name}/")]


def test_its_log_its_tags_and_its_place_in_the_list(account: Account) -> None:
    name = account.create("logged", Tags=[{"Key": "team", "Value": "a"}])
    arn = account.ended(name)["ProcessingJobArn"]
    assert lines(account, name) == ["arguments logged --"]
    assert account.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "a"}]
    found = account.sagemaker.list_processing_jobs(NameContains=name)["ProcessingJobSummaries"]
    assert [(row["ProcessingJobName"], row["ProcessingJobStatus"]) for row in found] == [(name, "Completed")]
    rows = account.sagemaker.list_processing_jobs(
        SortBy="CreationTime", SortOrder="Descending", StatusEquals="Completed"
    )["ProcessingJobSummaries"]
    assert rows[0]["ProcessingJobName"] == name
    assert rows == sorted(rows, key=lambda row: row["CreationTime"], reverse=True)
    account.sagemaker.delete_processing_job(ProcessingJobName=name)
    with pytest.raises(ClientError) as caught:
        account.describe(name)
    assert caught.value.response["Error"]["Code"] == "ResourceNotFound"


def test_a_name_is_taken_once(account: Account) -> None:
    request = account.request()
    account.sagemaker.create_processing_job(**request)
    assert account.refused(request)[0] == "ResourceInUse"
    account.ended(request["ProcessingJobName"])


def output(account: Account, **more: Any) -> dict[str, Any]:
    (given,) = account.request()["ProcessingOutputConfig"]["Outputs"]
    changed = {**given, "S3Output": {**given["S3Output"], **more}}
    return {"ProcessingOutputConfig": {"Outputs": [changed]}}


def cluster(**more: Any) -> dict[str, Any]:
    given = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10, **more}
    return {"ProcessingResources": {"ClusterConfig": given}}


def test_what_aws_refuses_is_refused(account: Account) -> None:
    two = [account.input("data"), account.input("data")]
    both = [{**account.input("data"), "DatasetDefinition": {}}]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ProcessingJobName": "a_b"}, "regular expression pattern"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 777601}}, "less than or equal to 777600"),
        (cluster(InstanceType="ml.none.large"), "enum value set"),
        (cluster(VolumeSizeInGB=None), "Member must not be null"),
        (cluster(InstanceType="ml.g4dn.xlarge", VolumeKmsKeyId="key"), "KMS key is not supported"),
        (
            {"ProcessingInputs": [account.input("data", LocalPath="/tmp/x")]},
            "must begin with /opt/ml/processing/",
        ),
        ({"ProcessingInputs": [account.input("data", LocalPath=None)]}, "LocalPath is required"),
        ({"ProcessingInputs": two}, "names 'data' more than once"),
        ({"ProcessingInputs": both}, "exactly one of S3Input or DatasetDefinition"),
        (
            {"ProcessingInputs": [account.input("data", S3CompressionType="Gzip")]},
            "used in Pipe mode",
        ),
        ({"ProcessingInputs": [account.input("nothing")]}, "No S3 objects found"),
        (output(account, S3UploadMode="Sometimes"), "enum value set"),
        (output(account, LocalPath="/opt/ml/output"), "begin with /opt/ml/processing/"),
        ({"AppSpecification": {"ImageUri": IMAGE.replace("peagle-prepare", "x")}}, "'peagle-prepare' in it"),
        ({"AppSpecification": {"ImageUri": "docker.io/peagle-prepare"}}, "non-ECR image"),
    ]
    for changed, said in cases:
        code, text = account.refused({**account.request(), **changed})
        assert said in text, changed
        assert code == "ValidationException", changed


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("s3:ListBucket", 'No S3 objects found under S3 URL "s3://processing-jobs/code/"'),
        ("ecr:BatchGetImage", "Access denied for repository: peagle-prepare"),
    ],
)
def test_a_role_without_a_right_is_refused(account: Account, action: str, said: str) -> None:
    code, text = account.refused({**account.request(), "RoleArn": role(account, action)})
    assert said in text
    assert code == "ValidationException"


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("s3:GetObject", "Unable to download object s3://processing-jobs/code/run.py (AccessDenied"),
        ("s3:PutObject", "Data upload failed:Unable to upload s3://processing-jobs/out/"),
    ],
)
def test_a_role_without_the_objects_fails_the_job(account: Account, action: str, said: str) -> None:
    done = account.ended(account.create(RoleArn=role(account, action)))
    assert done["ProcessingJobStatus"] == "Failed"
    assert said in done["FailureReason"]


def role(account: Account, without: str) -> str:
    """A role with all rights of such a job but one."""
    iam, name = account.server.client("iam"), f"processing-{next(_numbers)}"
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    rights = {
        "s3:ListBucket",
        "s3:GetObject",
        "s3:PutObject",
        "logs:*",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
    }
    allow = {"Effect": "Allow", "Action": sorted(rights - {without}), "Resource": "*"}
    iam.put_role_policy(
        RoleName=name,
        PolicyName="p",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allow]}),
    )
    return str(arn)


def test_a_quota_that_is_set_is_held(account: Account) -> None:
    quota = "ml.m5.4xlarge for processing job usage"
    body = json.dumps({"quota": quota, "instances": 1}).encode()
    with urllib.request.urlopen(f"{account.server.url}/_peagle/quotas", body) as answer:
        assert answer.status == 200
    request = {**account.request(), **cluster(InstanceType="ml.m5.4xlarge", InstanceCount=2)}
    code, text = account.refused(request)
    assert (code, f"service limit '{quota}' is 1 Instances" in text) == ("ResourceLimitExceeded", True)


def test_the_clock_counts_the_run(account: Account) -> None:
    name = account.create("hold")
    eventually(lambda: any("holding" in line for line in lines(account, name)))
    client.advance_clock(account.server.status.port, 1800)
    account.sagemaker.stop_processing_job(ProcessingJobName=name)
    done = account.ended(name)
    assert done["ProcessingEndTime"] - done["ProcessingStartTime"] >= timedelta(minutes=30)
