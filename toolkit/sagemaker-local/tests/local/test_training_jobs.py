"""Training jobs over HTTP with boto3, written from AWS's public documentation; a scripted program trains.

"Guide" is the SageMaker developer guide, "model" SageMaker's service model as botocore ships it.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import tarfile
import time
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from sagemaker_local.process import client
from sagemaker_local.runtime.job_processes import name_below
from tests.local.serving import Server, eventually

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/peagle-trainer:cpu"
GROUP = "/aws/sagemaker/TrainingJobs"
BUCKET = "training-jobs"
_numbers = itertools.count(1)


class Account:
    """What the tests ask of the local AWS."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sagemaker = server.client("sagemaker")
        # Sends what boto3 itself would refuse.
        config = Config(parameter_validation=False, retries={"max_attempts": 1})
        keys = {"region_name": "us-east-1", "aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.unchecked: Any = boto3.client("sagemaker", endpoint_url=server.url, config=config, **keys)  # type: ignore[call-overload]
        self.s3 = server.client("s3")
        self.s3.create_bucket(Bucket=BUCKET)

    def request(self, script: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
        """CreateTrainingJob's request: AWS's required members, a new name, and the script."""
        resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10}
        return {
            "TrainingJobName": f"job-{next(_numbers)}",
            "RoleArn": self.server.status.role_arn,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "HyperParameters": script or {},
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {**resources, **more.pop("resources", {})},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            **more,
        }

    def create(self, script: dict[str, str] | None = None, **more: Any) -> str:
        request = self.request(script, **more)
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def spot(self, script: dict[str, str], **more: Any) -> str:
        """A job on Spot instances with checkpoints of its own."""
        name = f"spot-{next(_numbers)}"
        return self.create(
            script,
            TrainingJobName=name,
            EnableManagedSpotTraining=True,
            StoppingCondition={"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
            CheckpointConfig={"S3Uri": f"s3://{BUCKET}/checkpoints/{name}"},
            **more,
        )

    def describe(self, name: str) -> dict[str, Any]:
        return dict(self.sagemaker.describe_training_job(TrainingJobName=name))

    def until(self, name: str, *wanted: str) -> dict[str, Any]:
        """Wait for a secondary status; an end that was not waited for fails at once."""

        def reached() -> Any:
            result = self.describe(name)
            if result["SecondaryStatus"] in wanted:
                return result
            assert result["TrainingJobStatus"] in ("InProgress", "Stopping"), result
            return None

        return dict(eventually(reached))

    def done(self, script: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
        return self.until(self.create(script, **more), "Completed")

    def holding(self, name: str) -> int:
        """Wait until the program holds; return its process id."""

        def held() -> Any:
            return re.findall(r"holding (\d+)", "\n".join(self.lines(name)))

        return int(eventually(held)[-1])

    def streams(self, name: str) -> list[str]:
        logs = self.server.client("logs")
        try:
            log_streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [stream["logStreamName"] for stream in log_streams["logStreams"]]

    def lines(self, name: str) -> list[str]:
        logs = self.server.client("logs")
        result = (
            logs.get_log_events(logGroupName=GROUP, logStreamName=stream, startFromHead=True)["events"]
            for stream in self.streams(name)
        )
        return [event["message"] for events in result for event in events]

    def put(self, **files: str) -> None:
        for key, text in files.items():
            self.s3.put_object(Bucket=BUCKET, Key=key, Body=text.encode())

    def keys(self, prefix: str) -> list[str]:
        result = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [each["Key"] for each in result]

    def archive(self, name: str, which: str = "model") -> dict[str, str]:
        """The text files of a job's archive."""
        return {key: content.decode() for key, content in self.packed(name, which).items()}

    def packed(self, name: str, which: str = "model") -> dict[str, bytes]:
        body = self.s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/{which}.tar.gz")["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            opened = {member.name: tar.extractfile(member) for member in tar.getmembers()}
            return {key: file.read() for key, file in opened.items() if file is not None}

    def post(self, route: str, body: object) -> int:
        try:
            with urllib.request.urlopen(
                f"{self.server.url}/_peagle/{route}", json.dumps(body).encode()
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def advance(self, seconds: float) -> None:
        client.advance_clock(self.server.status.port, seconds)

    def interrupt(self, name: str) -> None:
        client.interrupt_training(self.server.status.port, name)


@pytest.fixture
def aws(server: Server) -> Account:
    return Account(server)


def transitions(described: dict[str, Any]) -> list[str]:
    return [each["Status"] for each in described["SecondaryStatusTransitions"]]


def channel(name: str, prefix: str, **source: str) -> dict[str, Any]:
    s3 = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}", **source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": s3}}


def test_a_job_goes_through_awss_statuses_to_completed(aws: Account) -> None:
    """Guide, "Managed Spot Training Lifecycle" (without interruption); model, DescribeTrainingJobResponse."""
    requested = aws.request({"write": json.dumps({"model/a/w": "1", "output/data/o": "2"})})
    arn = aws.sagemaker.create_training_job(**requested)["TrainingJobArn"]
    name = requested["TrainingJobName"]
    assert arn == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"
    job = aws.until(name, "Completed")
    assert job["TrainingJobStatus"] == "Completed"
    assert transitions(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    moves = job["SecondaryStatusTransitions"]
    assert all(each["StartTime"] <= each["EndTime"] for each in moves)
    assert [each["EndTime"] for each in moves[:-1]] == [each["StartTime"] for each in moves[1:]]
    times = ("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime")
    assert sorted(job[each] for each in times) == [job[each] for each in times]
    assert job["TrainingTimeInSeconds"] >= job["BillableTimeInSeconds"] >= 1
    assert {key: job[key] for key in requested if key != "TrainingJobName"} == {
        key: value for key, value in requested.items() if key != "TrainingJobName"
    }
    assert job["ModelArtifacts"] == {"S3ModelArtifacts": f"s3://{BUCKET}/out/{name}/output/model.tar.gz"}
    assert aws.archive(name) == {"a/w": "1"}
    assert aws.archive(name, "output") == {"o": "2"}
    assert (job["EnableManagedSpotTraining"], job["EnableNetworkIsolation"]) == (False, False)


def test_the_program_finds_what_sagemaker_gives_it(aws: Account) -> None:
    """Guide, "How Amazon SageMaker AI Provides Training Information"."""
    aws.put(**{"d/train/x.txt": "x", "d/train/deep/y.txt": "y", "d/other/z.txt": "z"})
    script = {"report": "1", "epochs": "3"}
    channels = [channel("training", "d/train/"), {**channel("one", "d/other/z.txt"), "InputMode": "FastFile"}]
    job = aws.done(script, InputDataConfig=channels, Environment={"MINE": "yes"})
    seen = json.loads(aws.archive(job["TrainingJobName"])["algo-1.json"])
    assert seen["hyperparameters"] == script
    assert seen["data"] == {"training/x.txt": "x", "training/deep/y.txt": "y", "one/z.txt": "z"}
    common = {"S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    assert seen["inputdataconfig"] == {
        "training": {"TrainingInputMode": "File", **common},
        "one": {"TrainingInputMode": "FastFile", **common},
    }
    assert (seen["resourceconfig"]["current_host"], seen["resourceconfig"]["hosts"]) == ("algo-1", ["algo-1"])
    assert seen["resourceconfig"]["current_instance_type"] == "ml.m5.large"
    variables = seen["environ"]
    assert variables["TRAINING_JOB_NAME"] == job["TrainingJobName"]
    assert variables["TRAINING_JOB_ARN"] == job["TrainingJobArn"]
    assert (variables["AWS_REGION"], variables["MINE"]) == ("us-east-1", "yes")
    assert (variables["OMP_NUM_THREADS"], variables["OMP_WAIT_POLICY"]) == ("1", "PASSIVE")
    assert not {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} & variables.keys()


def test_a_job_gets_the_files_of_a_model_that_is_downloaded_when_it_is_first_read(aws: Account) -> None:
    uri = aws.server.status.artifacts["smollm2"]
    job = aws.done({"report": "1"}, InputDataConfig=[channel("target", "", S3Uri=uri)])
    seen = json.loads(aws.archive(job["TrainingJobName"])["algo-1.json"])
    assert {"target/config.json", "target/README.md"} <= seen["data"].keys()


def test_several_instances_have_folders_of_their_own(aws: Account) -> None:
    """Guide, "Distributed Training Configuration"."""
    aws.put(**{f"shards/{n}": str(n) for n in range(3)})
    channels = [channel("all", "shards/")]
    job = aws.done({"report": "1"}, InputDataConfig=channels, resources={"InstanceCount": 2})
    files = aws.archive(job["TrainingJobName"])
    one, two = (json.loads(files[f"algo-{n}.json"]) for n in (1, 2))
    assert [each["resourceconfig"]["current_host"] for each in (one, two)] == ["algo-1", "algo-2"]
    assert one["resourceconfig"]["hosts"] == two["resourceconfig"]["hosts"] == ["algo-1", "algo-2"]
    assert all({f"all/{n}" for n in range(3)} <= each["data"].keys() for each in (one, two))
    assert len({each["environ"]["PEAGLE_ML_ROOT"] for each in (one, two)}) == 2
    meeting = ("PEAGLE_TRAIN_MASTER_ADDR", "PEAGLE_TRAIN_MASTER_PORT")
    assert len({tuple(each["environ"][name] for name in meeting) for each in (one, two)}) == 1
    streams = aws.streams(job["TrainingJobName"])
    assert [re.sub(r"\d+$", "", each.partition("/")[2]) for each in streams] == ["algo-1-", "algo-2-"]


def test_one_instance_that_fails_ends_the_others(aws: Account) -> None:
    script = {"only": "algo-2", "fail": "rank 1: out of memory", "exit": "1", "hold": ""}
    job = aws.until(aws.create(script, resources={"InstanceCount": 2}), "Failed")
    assert job["FailureReason"] == "AlgorithmError: rank 1: out of memory, exit code: 1"


def test_output_is_in_cloudwatch_logs_and_its_metrics_in_cloudwatch(aws: Account) -> None:
    """Guide, "Log groups and streams", "Define training metrics"; dimension: aws/sagemaker-python-sdk."""
    message = "|".join(["step=1 loss=2.5 acc=nan", "step=2 loss=-1.25e-1 acc=0.5", "nothing"])
    definitions = [
        {"Name": "loss", "Regex": r"loss=([-+.e\d]+)"},
        {"Name": "acc", "Regex": r"acc=(\S+)"},
        {"Name": "no group", "Regex": "step"},
        {"Name": "never", "Regex": "(never)"},
    ]
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": definitions}
    job = aws.done({"say": message}, AlgorithmSpecification=algorithm)
    name = job["TrainingJobName"]
    (stream,) = aws.streams(name)
    assert re.fullmatch(rf"{name}/algo-1-\d{{13}}", stream)
    assert aws.lines(name)[-3:] == message.split("|")
    by_name = {each["MetricName"]: each["Value"] for each in job["FinalMetricDataList"]}
    assert by_name == {"loss": -0.125, "acc": 0.5}
    cloudwatch = aws.server.client("cloudwatch")
    start = job["CreationTime"] - timedelta(minutes=1)
    answer = cloudwatch.get_metric_statistics(
        Namespace=GROUP,
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": name}],
        StartTime=start,
        EndTime=start + timedelta(minutes=10),
        Period=3600,
        Statistics=["Minimum", "Maximum"],
    )
    assert min(each["Minimum"] for each in answer["Datapoints"]) == -0.125
    assert max(each["Maximum"] for each in answer["Datapoints"]) == 2.5


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"exit": "2", "fail": "no data in channel training"}, "no data in channel training, exit code: 2"),
        ({"exit": "1"}, ", exit code: 1"),
        ({"exit": "3", "fail": "x" * 2000 + "END"}, "x" * (1024 - 16 - 14) + ", exit code: 3"),
    ],
    ids=["message", "none", "long"],
)
def test_why_a_job_failed_is_what_it_wrote(aws: Account, script: dict[str, str], reason: str) -> None:
    """Guide, "How Amazon SageMaker AI Processes Training Output": the first 1,024 characters."""
    script = {**script, "write": json.dumps({"output/data/kept": "1"})}
    job = aws.until(aws.create(script), "Failed")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == f"AlgorithmError: {reason}"[:1024]
    assert len(job["FailureReason"]) <= 1024
    assert transitions(job) == ["Starting", "Downloading", "Training", "Uploading", "Failed"]
    assert aws.archive(job["TrainingJobName"], "output") == {"kept": "1"}
    assert aws.keys(f"out/{job['TrainingJobName']}/output/model") == []  # nothing was in /opt/ml/model


def test_a_model_can_stay_uncompressed(aws: Account) -> None:
    """Model, OutputDataConfig$CompressionType."""
    output = {"S3OutputPath": f"s3://{BUCKET}/plain/", "CompressionType": "NONE"}
    job = aws.done({"write": json.dumps({"model/deep/w": "1"})}, OutputDataConfig=output)
    folder = f"plain/{job['TrainingJobName']}/output/model/"
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/{folder}"
    assert aws.keys("plain/") == [f"{folder}deep/w"]


def test_a_stopped_job_may_save_its_model_on_sigterm(aws: Account) -> None:
    """Model, StopTrainingJob: SIGTERM, 120 seconds; TrainingEndTime: stopped jobs' artifacts are uploaded."""
    name = aws.create({"hold": "always", "on_term": json.dumps({"model/partial": "1"})})
    process = aws.holding(name)
    aws.sagemaker.stop_training_job(TrainingJobName=name)
    training_job_status = aws.describe(name)["TrainingJobStatus"]
    assert training_job_status in ("Stopping", "Stopped")
    job = aws.until(name, "Stopped")
    assert job["TrainingJobStatus"] == "Stopped"
    assert transitions(job) == ["Starting", "Downloading", "Training", "Stopping", "Stopped"]
    assert "FailureReason" not in job
    assert aws.archive(name) == {"partial": "1"}
    assert not psutil.pid_exists(process)
    with pytest.raises(ClientError) as refused:
        aws.sagemaker.stop_training_job(TrainingJobName=name)
    assert refused.value.response["Error"] == {
        "Code": "ValidationException",
        "Message": "The request was rejected because the training job is in status Stopped.",
    }


@pytest.mark.parametrize("after_s", [0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15])
def test_a_stop_at_any_moment_of_the_start_reaches_the_program(aws: Account, after_s: float) -> None:
    name = aws.create({"hold": "always"}, resources={"InstanceCount": 2})
    time.sleep(after_s)
    aws.sagemaker.stop_training_job(TrainingJobName=name)
    assert aws.until(name, "Stopped")["TrainingJobStatus"] == "Stopped"  # not after 120 seconds


def test_a_program_that_ignores_sigterm_is_killed_after_120_seconds(aws: Account) -> None:
    name = aws.create({"hold": "always", "on_term": "ignore", "detach": "1"})
    process = aws.holding(name)
    aws.sagemaker.stop_training_job(TrainingJobName=name)
    aws.advance(100)
    assert aws.describe(name)["TrainingJobStatus"] == "Stopping"
    assert psutil.pid_exists(process)
    aws.advance(30)
    assert aws.until(name, "Stopped")["BillableTimeInSeconds"] >= 100
    (detached,) = re.findall(r"detached (\d+)", "\n".join(aws.lines(name)))
    eventually(lambda: not psutil.pid_exists(process) and not psutil.pid_exists(int(detached)))


def test_a_job_that_runs_too_long_is_stopped(aws: Account) -> None:
    """Model, StoppingCondition$MaxRuntimeInSeconds, by the local clock."""
    script = {"hold": "always", "on_term": json.dumps({"model/late": "1"})}
    name = aws.create(script, StoppingCondition={"MaxRuntimeInSeconds": 600})
    aws.holding(name)
    aws.advance(500)
    assert aws.describe(name)["SecondaryStatus"] == "Training"
    aws.advance(150)
    job = aws.until(name, "MaxRuntimeExceeded")
    assert job["TrainingJobStatus"] == "Stopped"
    assert transitions(job)[-3:] == ["Training", "Stopping", "MaxRuntimeExceeded"]
    assert aws.archive(name) == {"late": "1"}
    assert 600 <= job["BillableTimeInSeconds"] < 900


def test_an_interrupted_job_goes_on_from_its_checkpoints(aws: Account) -> None:
    """Guide, "Managed Spot Training Lifecycle" (interrupted once), "Use Checkpoints"."""
    script = {
        "write": json.dumps({"checkpoints/step-1/a": "1"}),
        "hold": "term",
        "on_term": json.dumps({"checkpoints/last": "2"}),
        "report": "1",
    }
    aws.put(**{"spot-data/x": "x"})
    kind = {"InstanceType": "ml.c5.xlarge"}
    name = aws.spot(script, InputDataConfig=[channel("training", "spot-data/")], resources=kind)
    aws.holding(name)
    folder = f"checkpoints/{name}/"
    eventually(lambda: aws.keys(folder) == [f"{folder}step-1/a"])  # stored while it trains
    assert aws.post("capacity", {"instance_type": "ml.c5.xlarge", "instances": 0}) == 200
    try:
        aws.interrupt(name)
        waiting = aws.until(name, "Starting")
        assert transitions(waiting) == ["Starting", "Downloading", "Training", "Interrupted", "Starting"]
        assert aws.keys(f"out/{name}/") == []  # only checkpoints survive an interruption
        aws.advance(1000)
    finally:
        aws.post("capacity", {"instance_type": "ml.c5.xlarge", "instances": None})
    job = aws.until(name, "Completed")
    once = ["Starting", "Downloading", "Training"]
    assert transitions(job) == [*once, "Interrupted", *once, "Uploading", "Completed"]
    seen = json.loads(aws.archive(name)["algo-1.json"])
    assert seen["checkpoints"] == {"last": "2", "step-1/a": "1"}
    assert seen["data"] == {"training/x": "x"}
    assert len(aws.streams(name)) == 2
    assert job["TrainingTimeInSeconds"] >= 1000
    assert job["BillableTimeInSeconds"] < 500  # what passed without instances is not billed


def test_an_interruption_gives_120_seconds_and_no_more(aws: Account) -> None:
    name = aws.spot({"hold": "term", "on_term": "ignore", "write": json.dumps({"checkpoints/c": "1"})})
    process = aws.holding(name)
    aws.interrupt(name)
    aws.advance(60)
    assert aws.describe(name)["SecondaryStatus"] == "Training"
    assert psutil.pid_exists(process)
    aws.advance(70)
    assert transitions(aws.until(name, "Completed")).count("Interrupted") == 1


def test_spot_instances_that_never_come_end_the_job_at_its_longest_wait(aws: Account) -> None:
    """Guide, "Managed Spot Training Lifecycle": Starting, Stopping, MaxWaitTimeExceeded."""
    kind = {"InstanceType": "ml.c5.2xlarge"}
    assert aws.post("capacity", {"instance_type": "ml.c5.2xlarge", "instances": 0}) == 200
    try:
        name = aws.spot({}, resources=kind)
        aws.advance(7000)
        assert aws.describe(name)["SecondaryStatus"] == "Starting"
        aws.advance(400)
        job = aws.until(name, "MaxWaitTimeExceeded")
        failed = aws.until(aws.create({}, resources=kind), "Failed")
    finally:
        aws.post("capacity", {"instance_type": "ml.c5.2xlarge", "instances": None})
    assert job["TrainingJobStatus"] == "Stopped"
    assert transitions(job) == ["Starting", "Stopping", "MaxWaitTimeExceeded"]
    assert not {"TrainingStartTime", "BillableTimeInSeconds"} & job.keys()
    assert failed["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute")


def test_what_cannot_be_interrupted_is_refused(aws: Account) -> None:
    name = aws.done()["TrainingJobName"]
    for job in (name, "no-such-job"):
        assert aws.post(f"training-jobs/{job}/interrupt", {}) == 400
    spot = aws.spot({})
    aws.until(spot, "Completed")
    assert aws.post(f"training-jobs/{spot}/interrupt", {}) == 400


def refused(aws: Account, code: str, message: str, **request: Any) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        aws.sagemaker.create_training_job(**aws.request(**request))
    assert caught.value.response["Error"]["Code"] == code


ALGORITHM = {"TrainingImage": IMAGE, "TrainingInputMode": "File"}
PIPE = {**ALGORITHM, "TrainingInputMode": "Pipe"}
SPOT = {"EnableManagedSpotTraining": True}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"TrainingJobName": "a_b"}, r"at 'trainingJobName' failed to satisfy constraint: .*pattern"),
        ({"TrainingJobName": "x" * 64}, "length less than or equal to 63"),
        ({"script": {str(n): "" for n in range(101)}}, "at 'hyperParameters' .* less than or equal to 100"),
        ({"script": {"k": "v" * 2501}}, "Map value must satisfy constraint"),
        ({"resources": {"InstanceType": "ml.none"}}, "at 'resourceConfig.instanceType' .* enum value set"),
        ({"resources": {"InstanceCount": 0}}, "InstanceCount is required: found 0"),
        ({"resources": {"KeepAlivePeriodInSeconds": 60}}, "warm pool .* not implemented by the local"),
        ({"OutputDataConfig": {"S3OutputPath": "bucket/x"}}, "at 'outputDataConfig.s3OutputPath'"),
        ({"OutputDataConfig": {"S3OutputPath": "https://bucket/x"}}, "expected s3://"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 29 * 86_400}}, "28 days"),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
            "only supported when EnableManagedSpotTraining is set to true",
        ),
        (SPOT, "Invalid MaxWaitTimeInSeconds. It must be present"),
        (
            {**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 61, "MaxWaitTimeInSeconds": 60}},
            "greater than or equal to MaxRuntimeInSeconds",
        ),
        ({"AlgorithmSpecification": {"TrainingInputMode": "File"}}, "needs TrainingImage or AlgorithmName"),
        (
            {"AlgorithmSpecification": {**ALGORITHM, "TrainingImage": "docker.io/peagle-trainer"}},
            "non-ECR image",
        ),
        (
            {"AlgorithmSpecification": {**ALGORITHM, "TrainingImage": IMAGE.replace("peagle-trainer", "x")}},
            "whose name has 'peagle-trainer' in it",
        ),
        (
            {
                "AlgorithmSpecification": {
                    **ALGORITHM,
                    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(["}],
                }
            },
            "Regex of metric 'loss' is not valid",
        ),
        ({"AlgorithmSpecification": PIPE, "InputDataConfig": [channel("c", "x/")]}, "mode Pipe is not impl"),
        (
            {"InputDataConfig": [channel("c", "x/"), channel("c", "y/")]},
            "has the channel 'c' more than once",
        ),
        ({"InputDataConfig": [channel("..", "x/")]}, "'..' is not a name"),
        ({"InputDataConfig": [channel("c", "x", S3DataType="ManifestFile")]}, "S3DataType S3Prefix is not"),
        (
            {"InputDataConfig": [channel("c", "nothing-here/")]},
            r'No S3 objects found under S3 URL "s3://training-jobs/nothing-here/" given in input data source',
        ),
        ({"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/c", "LocalPath": "/etc"}}, "below /opt/ml"),
        ({"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/c", "LocalPath": "/opt/ml/../x"}}, "below /opt/ml"),
        ({"RoleArn": "arn:aws:iam::123456789012:role/nobody"}, "Could not assume role"),
        ({"Tags": [{"Key": "aws:x", "Value": "y"}]}, "aws: prefixed tag key"),
        ({"DebugHookConfig": {"S3OutputPath": f"s3://{BUCKET}/d"}}, "DebugHookConfig is not implemented"),
    ],
)
def test_requests_that_are_refused(aws: Account, request_: dict[str, Any], message: str) -> None:
    """Model: constraints; guide: "Managed Spot Training"; wordings: docs/explanation/local.md."""
    with pytest.raises(ClientError, match=message) as caught:
        aws.unchecked.create_training_job(**aws.request(**request_))
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_name_is_taken_until_the_job_is_deleted(aws: Account) -> None:
    """ResourceInUse's words: SuperCowPowers/workbench#384; DeleteTrainingJob: model."""
    name = aws.create({"hold": "always"})
    with pytest.raises(aws.sagemaker.exceptions.ResourceInUse):
        aws.create(TrainingJobName=name.upper())
    with pytest.raises(aws.sagemaker.exceptions.ResourceInUse):
        aws.sagemaker.delete_training_job(TrainingJobName=name)
    aws.holding(name)
    aws.sagemaker.stop_training_job(TrainingJobName=name)
    aws.until(name, "Stopped")
    with pytest.raises(ClientError, match="Training job names must be unique within an AWS account and"):
        aws.create(TrainingJobName=name)
    aws.sagemaker.delete_training_job(TrainingJobName=name)
    for call in ("describe_training_job", "stop_training_job", "delete_training_job"):
        with pytest.raises(ClientError, match="Requested resource not found") as missing:
            getattr(aws.sagemaker, call)(TrainingJobName=name)
        assert missing.value.response["Error"]["Code"] == "ValidationException"
    aws.done(TrainingJobName=name)


ECR = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
LOGS = ("logs:CreateLogGroup", "cloudwatch:PutMetricData")
S3 = ("s3:GetObject", "s3:ListBucket", "s3:PutObject")


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("s3:ListBucket", 'has "s3:ListBucket" permissions on bucket "training-jobs"'),
        ("ecr:BatchGetImage", "Access denied for repository: peagle-trainer in registry ID: 123456789012"),
    ],
)
def test_what_a_role_must_allow_before_a_job_begins(aws: Account, lacks: str, message: str) -> None:
    aws.put(**{"role/x": "x"})
    role = aws.server.role("sagemaker", *({*S3, *ECR, *LOGS} - {lacks}))
    refused(aws, "ValidationException", message, RoleArn=role, InputDataConfig=[channel("c", "role/")])


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("s3:GetObject", "ClientError: Data download failed:Unable to download object s3://"),
        ("s3:PutObject", "ClientError: Artifact upload failed:Unable to upload s3://"),
    ],
)
def test_what_a_role_must_allow_while_a_job_runs(aws: Account, lacks: str, reason: str) -> None:
    aws.put(**{"role/x": "x"})
    role = aws.server.role("sagemaker", *({*S3, *ECR, *LOGS} - {lacks}))
    script = {"write": json.dumps({"model/w": "1"})}
    name = aws.create(script, RoleArn=role, InputDataConfig=[channel("c", "role/")])
    job = aws.until(name, "Failed")
    assert job["FailureReason"].startswith(reason)
    assert job["FailureReason"].endswith("(AccessDenied: Access Denied)")


def test_a_role_for_another_service_is_refused(aws: Account) -> None:
    role = aws.server.role("lambda", *S3, *ECR, *LOGS)
    refused(aws, "ValidationException", "allows principal 'sagemaker.amazonaws.com'", RoleArn=role)


def test_keys_with_two_slashes_fail_the_download_as_on_aws(aws: Account) -> None:
    """aws-samples/generative-ai-on-amazon-sagemaker#242."""
    aws.put(**{"two//x": "x"})
    job = aws.until(aws.create(InputDataConfig=[channel("c", "two//")]), "Failed")
    assert "has an illegal char sub-sequence '//' in it" in job["FailureReason"]


def test_a_bucket_that_is_not_there_fails_the_upload(aws: Account) -> None:
    output = {"S3OutputPath": "s3://no-such-bucket-at-all/out"}
    name = aws.create({"write": json.dumps({"model/w": "1"})}, OutputDataConfig=output)
    assert "Artifact upload failed" in aws.until(name, "Failed")["FailureReason"]


def test_jobs_are_listed_filtered_sorted_and_paged(aws: Account) -> None:
    """Model, ListTrainingJobs: with MaxResults the status filters what the page has."""
    names = [aws.create({}, TrainingJobName=f"listed-{letter}") for letter in "bca"]
    for name in names:
        aws.until(name, "Completed")
    failed = aws.create({"exit": "1"}, TrainingJobName="listed-f")
    aws.until(failed, "Failed")

    def listed(**asked: Any) -> list[str]:
        training_job_summaries = aws.sagemaker.list_training_jobs(NameContains="listed-", **asked)[
            "TrainingJobSummaries"
        ]
        return [each["TrainingJobName"].removeprefix("listed-") for each in training_job_summaries]

    assert listed() == ["f", "a", "c", "b"]
    assert listed(SortBy="Name", SortOrder="Ascending") == ["a", "b", "c", "f"]
    assert listed(StatusEquals="Failed") == ["f"]
    assert listed(StatusEquals="Completed", MaxResults=2) == ["a"]
    page = aws.sagemaker.list_training_jobs(NameContains="listed-", MaxResults=3)
    assert listed(MaxResults=3, NextToken=page["NextToken"]) == ["b"]
    assert listed(CreationTimeBefore=aws.describe(names[0])["CreationTime"]) == []
    summary = page["TrainingJobSummaries"][0]
    assert summary["TrainingJobStatus"] == summary["SecondaryStatus"] == "Failed"
    assert {"TrainingJobArn", "CreationTime", "TrainingEndTime", "LastModifiedTime"} <= summary.keys()


def test_jobs_have_tags(aws: Account) -> None:
    job = aws.done(Tags=[{"Key": "team", "Value": "a"}])
    arn = job["TrainingJobArn"]
    aws.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "b"}])
    aws.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert aws.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "b"}]
    tagging = aws.server.client("resourcegroupstaggingapi")
    resources = tagging.get_resources(
        TagFilters=[{"Key": "cost", "Values": ["b"]}], ResourceTypeFilters=["sagemaker:training-job"]
    )
    assert [each["ResourceARN"] for each in resources["ResourceTagMappingList"]] == [arn]


def test_keys_networks_and_isolation_come_back_as_they_went_in(aws: Account) -> None:
    kept: dict[str, Any] = {
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableNetworkIsolation": True,
        "EnableInterContainerTrafficEncryption": True,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out", "KmsKeyId": "alias/mine"},
    }
    job = aws.done(**kept, resources={"VolumeKmsKeyId": "1234abcd-12ab-34cd-56ef-1234567890ab"})
    assert {key: job[key] for key in kept} == kept
    assert job["ResourceConfig"]["VolumeKmsKeyId"].startswith("1234abcd")


@pytest.mark.parametrize("kind", ["ml.p4d.24xlarge", "ml.p5en.48xlarge", "ml.g4dn.xlarge", "ml.g6e.xlarge"])
def test_disks_of_the_instances_own_take_no_key_and_need_no_size(aws: Account, kind: str) -> None:
    """Model, ResourceConfig: no EBS volume, and "You can't request a VolumeKmsKeyId"."""
    resources = {"InstanceType": kind, "InstanceCount": 1}
    request = {**aws.request(), "ResourceConfig": resources}
    aws.sagemaker.create_training_job(**request)
    assert aws.until(request["TrainingJobName"], "Completed")["ResourceConfig"] == resources
    again = {**request, "TrainingJobName": f"{request['TrainingJobName']}-key"}
    with pytest.raises(ClientError, match="KMS key is not supported for NVMe"):
        aws.sagemaker.create_training_job(**{**again, "ResourceConfig": {**resources, "VolumeKmsKeyId": "k"}})


def test_a_volume_of_ebs_needs_its_size(aws: Account) -> None:
    request = aws.request()
    del request["ResourceConfig"]["VolumeSizeInGB"]
    with pytest.raises(ClientError, match="VolumeSizeInGB is required"):
        aws.sagemaker.create_training_job(**request)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("a/", "b/c"), ("a", "b/c"), ("a/b/c", "c"), ("a/b/", "c"), ("", "a/b/c"), ("a/b/x", "x1")],
)
def test_where_an_object_is_in_its_channel(prefix: str, name: str) -> None:
    assert name_below("a/b/x1" if prefix.endswith("x") else "a/b/c", prefix) == name
