"""The real `cdk` command line against the local server: bootstrap, deploy, diff, deploy again, destroy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_local.process.status import ACCOUNT, REGION
from tests.local.serving import Server

ROOT = Path(__file__).parents[5]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
# Two assemblies by one start of jsii, which is what takes long.
APP = """
import sys
import aws_cdk as cdk
from aws_cdk import aws_s3 as s3, aws_sns as sns, aws_sns_subscriptions as subscriptions, aws_sqs as sqs

for number in (1, 2):
    app = cdk.App(outdir=f"{sys.argv[1]}/{number}", analytics_reporting=False)
    where = cdk.Environment(account=sys.argv[2], region=sys.argv[3])
    stack = cdk.Stack(app, "Tiny", env=where)
    queue = sqs.Queue(stack, "Queue", visibility_timeout=cdk.Duration.seconds(30 * number))
    s3.Bucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
    sns.Topic(stack, "Topic").add_subscription(subscriptions.SqsSubscription(queue))
    cdk.CfnOutput(stack, "QueueUrl", value=queue.queue_url)
    app.synth()
"""


def environment(home: Path, server: Server) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),  # the CLI remembers accounts by key below it
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ENDPOINT_URL_S3": server.url,
        "CDK_VALIDATION": "false",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CI": "1",
    }


@pytest.mark.slow
def test_the_real_cdk_bootstraps_deploys_diffs_and_destroys(server: Server, tmp_path: Path) -> None:
    assert CDK.exists(), "the CDK's command line is not there; run `npm ci` in the project's root"
    known = environment(tmp_path, server)
    (tmp_path / "app.py").write_text(APP)
    synth = [sys.executable, str(tmp_path / "app.py"), str(tmp_path), ACCOUNT, REGION]
    # jsii unpacks the CDK's 400 MB below HOME, so this one keeps the user's.
    at_home = {**known, "HOME": os.environ.get("HOME", str(tmp_path))}
    subprocess.run(synth, env=at_home, check=True, capture_output=True, timeout=300)

    def cdk(*arguments: str) -> str:
        done = subprocess.run(
            [str(CDK), *arguments, "--no-notices"], env=known, cwd=tmp_path, capture_output=True, timeout=300
        )
        decode = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, decode
        return decode

    def timeout() -> str:
        sqs = server.client("sqs")
        (url,) = sqs.list_queues(QueueNamePrefix="Tiny-")["QueueUrls"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
        return str(attributes["Attributes"]["VisibilityTimeout"])

    assert "bootstrapped" in cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}")
    assert "QueueUrl" in cdk("deploy", "Tiny", "--app", "1", "--require-approval", "never")
    assert timeout() == "30"
    assert "There were no differences" in cdk("diff", "Tiny", "--app", "1")
    assert "VisibilityTimeout" in cdk("diff", "Tiny", "--app", "2")
    cdk("deploy", "Tiny", "--app", "2", "--require-approval", "never")
    assert timeout() == "60"
    assert "no changes" in cdk("deploy", "Tiny", "--app", "2", "--require-approval", "never")
    cdk("destroy", "Tiny", "--app", "2", "--force")
    assert "QueueUrls" not in server.client("sqs").list_queues(QueueNamePrefix="Tiny-")
