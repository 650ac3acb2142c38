"""docs/how-to/first-hour.md, run command by command in one bash session against the local SageMaker.

The page is for AWS. What is different here:
- PEAGLE_SM_LOCAL and PEAGLE_SM_LOCAL_PORT lead peagle-sm to the local server, AWS_ENDPOINT_URL the others;
- MY-BUCKET, which the page tells the reader to replace, is a bucket of the local server;
- `sleep` moves the local clock forward, and `date` follows it (PRELUDE);
- the confirmation prompts are answered with `y` at a terminal; the CDK's settings need no approval;
- ONLY_AWS has every command that is left out or changed, with the reason, and what takes its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.page_shell import JSII_CACHE, Finished, Shell, commands, scripted_server
from tests.rules.documents import blocks
from tests.rules.files import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

PAGE = Path("docs/how-to/first-hour.md")
HEADS = "toolkit/peagle-sm/tests/cli/test_heads.py"
PRELUDE = """\
advanced=0
sleep() { peagle-sm local clock advance "$1s" && advanced=$((advanced + $1)); }
date() {
  local words=("$@") i
  for i in "${!words[@]}"; do
    if [[ ${words[i]} == -d ]]; then
      words[i+1]+=" $advanced seconds"; command date "${words[@]}"; return
    fi
  done
  command date -d "$advanced seconds" "$@"
}"""
# The hub is not asked: small files take the place of the weights, under the URIs that `--write` writes.
STAGED = """\
for file in config.json model.safetensors p-eagle/config.json p-eagle/model.safetensors; do
  echo '{}' | aws s3 cp - s3://$bucket/models/qwen3-8b/$file
done
sed -i "s#s3://your-bucket/#s3://$bucket/models/#" zero.yaml"""
# The call that Application Auto Scaling would make.
SCALED = """\
aws sagemaker update-inference-component-runtime-config --inference-component-name zero \\
  --desired-runtime-config CopyCount={copies} && sleep {seconds}"""
NO_SCALING = "the local Application Auto Scaling keeps policies, but scales nothing: the test makes its call"
ONLY_AWS = {
    "sleep 2700": (NO_SCALING, SCALED.format(copies=0, seconds=2700)),
    "sleep 1200": (NO_SCALING, SCALED.format(copies=1, seconds=1200)),
    "aws logs test-metric-filter": (
        "CloudWatch's answer; tests/stacks/test_acceptance.py matches the patterns by its documented rules",
        "true",
    ),
    "peagle-sm heads stage gpt-oss-20b": (
        f"downloads 17 GB from the hub; {HEADS} stages from a hub on this machine",
        "true",
    ),
    "sed -i 's/^source: jumpstart": (
        "the preflight of a deploy reads the copies, which only the line before makes: JumpStart's stay",
        "true",
    ),
    "peagle-sm heads stage qwen3-8b": (
        f"downloads 18 GB from the hub; {HEADS} stages from a hub on this machine",
        STAGED,
    ),
    "while peagle-sm invoke gpt-oss-20b": (
        "the same loop, with 10 minutes from one request to the next instead of 2: each takes seconds here",
        "while peagle-sm invoke gpt-oss-20b -p 'Say hello.' --max-tokens 1; do sleep 600; done",
    ),
    "aws cloudtrail lookup-events": (
        "CloudTrail is not local: who deleted the endpoint is AWS's answer",
        "true",
    ),
}
# Commands that the page says fail, by their beginning, with the local server's words.
FAILS = {
    "aws sagemaker describe-endpoint --endpoint-name gpt-oss-20b --query EndpointStatus": "Could not find",
    "peagle-sm invoke zero": "has no copy that can answer",
}


def page_commands() -> list[str]:
    """Every command of the page's bash blocks, in its order."""
    return [line for block in blocks("bash") if block.path == PAGE for line in commands(block.text)]


def exception(command: str) -> tuple[str, str] | None:
    """Why a command runs only on AWS, and what takes its place."""
    return next((entry for start, entry in ONLY_AWS.items() if command.startswith(start)), None)


@dataclass
class Walk:
    """The finished commands of a walk, found by their beginning."""

    finished: list[Finished] = field(default_factory=list)

    def outputs(self, start: str) -> list[str]:
        """What the commands that begin so printed."""
        return [done.output for done in self.finished if done.command.startswith(start)]

    def output(self, start: str) -> str:
        """What the only command that begins so printed."""
        (output,) = self.outputs(start)
        return output


def _checkout(folder: Path) -> Path:
    """A folder with links to all that the checkout has, so that the page's files are not written into it."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in (".git", "cdk.out", "first.yaml", "zero.yaml", "chat.json"):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def walk(aws_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The whole page, run once."""
    work = tmp_path_factory.mktemp("first-hour")
    programs = work / "bin"
    programs.mkdir()
    # Version 1 of the AWS CLI has addresses of its own for SQS, which win over AWS_ENDPOINT_URL.
    program = programs / "aws"
    program.write_text(f'#!/bin/sh\nexec {aws_program} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
    program.chmod(0o755)
    (work / ".cdk.json").write_text('{"requireApproval": "never", "notices": false}')
    (work / "weights").mkdir()
    with scripted_server(work / "weights") as server:
        environ = {
            **{key: os.environ[key] for key in ("XDG_STATE_HOME", "PEAGLE_SM_PRICES")},
            **JSII_CACHE,
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "HOME": str(work),
            "PATH": f"{programs}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": server["url"],
            "AWS_ENDPOINT_URL_S3": server["url"],
            "AWS_ACCESS_KEY_ID": "first-hour",
            "AWS_SECRET_ACCESS_KEY": "first-hour",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PEAGLE_SM_LOCAL": "1",
            "PEAGLE_SM_LOCAL_PORT": str(server["port"]),
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "npm_config_update_notifier": "false",
        }
        shell = Shell(_checkout(work / "checkout"), environ)
        assert shell.run(PRELUDE).status == 0
        done = Walk()
        for command in page_commands():
            left_out = exception(command)
            text = command.replace("MY-BUCKET", server["bucket"]) if left_out is None else left_out[1]
            result = shell.run(text)
            done.finished.append(Finished(command, result.status, result.output))
            words = next((words for start, words in FAILS.items() if command.startswith(start)), None)
            if words is None:
                assert result.status == 0, f"{command}\n{result.output[-6000:]}"
            else:
                assert result.status != 0, command
                assert words in result.output, f"{command}\n{result.output}"
        shell.close()
        yield done


def test_the_guard_sweeps_and_scheduler_calls_both_delete_actions(walk: Walk) -> None:
    status = walk.output("peagle-sm guard status")
    assert "CREATE_COMPLETE" in status
    assert "team@example.com" in status
    assert re.search(r"last sweep +\d{4}-", status)
    assert "peagle-guard-no-sweep: OK" in status
    created = walk.output("for call in 'deleteEndpoint")
    assert created.count('"ScheduleArn"') == 2
    messages = walk.output("aws sqs receive-message")
    assert messages.count('"ERROR_CODE"') == 2
    assert len(re.findall(r'"StringValue": "(?:AccessDeniedException|ValidationException)"', messages)) == 2


def test_the_endpoint_answers_and_its_figures_come_each_minute(walk: Walk) -> None:
    answer = walk.output("peagle-sm invoke gpt-oss-20b -p")
    assert "token0" in answer
    assert "reported no acceptance length" in answer  # as the page says of JumpStart's image
    assert "vllm:0.18" in walk.outputs("peagle-sm deploy first.yaml")[0]
    (listed,) = walk.outputs("aws sagemaker list-endpoints")
    (described,) = walk.outputs("aws sagemaker describe-endpoint --endpoint-name gpt-oss-20b --query '[")
    assert listed.split() == described.split()
    rows = re.findall(r"\|\s*([\d.]+)\s*\|\s*([\d.]+)\s*\|\s*\S+Z?\s*\|", walk.output("aws cloudwatch"))
    assert len(rows) >= 9, walk.output("aws cloudwatch")
    sweep = walk.output("peagle-sm guard sweep --dry-run")
    assert "gpt-oss-20b" in sweep
    assert "traffic" in sweep or "quiet" in sweep, sweep
    assert set(walk.output("for metric in").split()) <= {"20", "0"}


def test_the_lifetime_schedule_ends_the_endpoint(walk: Walk) -> None:
    # Requests went through until then, so the guard's sweep had not begun to delete it before.
    created = walk.outputs("peagle-sm deploy first.yaml")[0]
    ends = re.search(r"deletes the endpoint at (\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC", created)
    assert ends is not None
    loop = walk.output("while peagle-sm invoke")
    moments = re.findall(r"local clock is now at (\S{16})", loop)
    assert loop.count("token0") == len(moments)
    assert moments[-2] <= f"{ends[1]}T{ends[2]}" <= moments[-1]


def test_the_stack_scales_to_zero_and_back(walk: Walk) -> None:
    counts = [done.output.strip() for done in walk.finished if done.command == "count"]
    assert counts == ["1", "0", "1"]


def test_each_exception_is_on_the_page_and_names_its_reason() -> None:
    lines = page_commands()
    for start, (reason, _) in ONLY_AWS.items():
        assert any(command.startswith(start) for command in lines), f"{start} is not on the page any more"
        for path in re.findall(r"(?:toolkit/[\w-]+/)?tests/\S+\.py", reason):
            assert (ROOT / path).is_file(), path
    for start in FAILS:
        assert any(command.startswith(start) for command in lines), f"{start} is not on the page any more"
    assert len([command for command in lines if exception(command)]) * 5 < len(lines)
