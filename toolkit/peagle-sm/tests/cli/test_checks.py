"""`peagle-sm doctor`, and the page of the checks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from peagle_sm.cli.commands.planning.plan import render_deploy_notes, render_results
from peagle_sm.core.checks import ALL_CHECKS
from peagle_sm.core.checks.base import Result
from scripts.reference_pages.checks import checks_page
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.serving import Server

ERROR = Result(
    "quota-instances",
    "error",
    "the quota is 0",
    "A quota.",
    "It is refused.",
    "Ask for more.",
    "Service Quotas",
    "https://example.com/q",
)
WARNING = Result("gpus", "warning", "7 GPUs idle", "GPUs.", "Billed.", "Use them.")
UNKNOWN = Result("image-exists", "unknown", "denied", "An image.", "It sticks.", "Ask.", permission="ecr:X")
SKIPPED = Result("vpc", "skipped", "skipped; it checks for: A VPC.", "A VPC.", "No address.")
NOT_BUILT = Result("local-machine", "ok", "it is not built", "The engine.", "For --local.")
OK = Result("credentials", "ok", "", "Nobody.", "Nothing works.")


def test_verbose_says_why_and_from_where_and_names_what_passed() -> None:
    text = render_results([ERROR, WARNING, UNKNOWN, SKIPPED, NOT_BUILT, OK], verbose=True)
    assert "    why: It is refused.\n    next: Ask for more.\n" in text
    assert "    source: Service Quotas <https://example.com/q>\n" in text
    assert "Passed\n  credentials\n" in text


BRIEF = """\
Errors
  quota-instances: the quota is 0
    next: Ask for more.

Warnings
  gpus: 7 GPUs idle
    next: Use them.

Unknown (could not be checked)
  image-exists: denied
  4 checks: no AWS credentials were found.

Skipped
  vpc: skipped; it checks for: A VPC.

Good to know
  local-machine: it is not built

10 checks: 1 with errors, 1 with warnings, 5 unknown, 1 skipped, 2 passed
(--verbose: all checks, with sources)"""


def test_by_default_equal_causes_are_one_line_and_what_is_well_a_number() -> None:
    same = [
        replace(UNKNOWN, check=f"check-{n}", message=f"Describe{n}: no AWS credentials were found.")
        for n in range(4)
    ]
    assert render_results([ERROR, WARNING, UNKNOWN, *same, SKIPPED, NOT_BUILT, OK]) == BRIEF


def test_without_a_region_the_machine_is_checked_all_the_same(tmp_path: Path) -> None:
    nothing = {"HOME": str(tmp_path)}
    result = run("doctor", environ=nothing)
    assert result.exit_code == 5
    assert "credentials: AWS profile default: no AWS credentials were found" in result.stdout
    assert "checks: 1 with errors" in result.stdout
    assert "region: No AWS region is set; plan and doctor assume us-east-1" in result.stdout
    assert result.stderr == (
        "error: checks with errors: credentials\n"
        "  next: Fix the errors above, then run `peagle-sm doctor` again.\n"
    )
    rows = json.loads(run("doctor", "--format", "json", environ=nothing).stdout)
    assert "local-machine" in {row["check"] for row in rows}


def test_a_suggested_command_goes_where_was_looked() -> None:
    step = "Run `peagle-sm guard install`, then `peagle-sm local logs`, or `peagle-sm delete x --region r`."
    result = Result("guard", "error", "none", "Title.", "Why.", step)
    results = render_results([result], " --local-port 7070")
    assert (
        "next: Run `peagle-sm guard install --local-port 7070`, then `peagle-sm local logs`, "
        "or `peagle-sm delete x --region r`.\n"
    ) in results
    assert step in render_results([result])


def test_what_a_deploy_goes_on_in_spite_of() -> None:
    assert render_deploy_notes([WARNING, SKIPPED]).splitlines() == [
        "Preflight",
        "  warning  gpus: 7 GPUs idle",
        "  skipped  vpc: skipped; it checks for: A VPC.",
        "  for all checks and next steps, run: peagle-sm doctor",
    ]


def test_the_page_has_a_section_for_each_check() -> None:
    assert re.findall(r"^### (\S+)$", checks_page(), re.MULTILINE) == [each.id for each in ALL_CHECKS]


def test_doctor_on_the_local_sagemaker(peagle: Run, spec: Callable[..., str]) -> None:
    path = spec("doctored", SM_VLLM_TRUST_REMOTE_CODE="true")
    result = peagle("doctor", path)
    assert result.exit_code == 3, result.stderr
    assert "forbidden-flags: serving.env.SM_VLLM_TRUST_REMOTE_CODE: not allowed" in result.stdout
    assert "checks with errors:" in result.stderr
    assert "forbidden-flags" in result.stderr
    rows = {row["check"]: row for row in json.loads(peagle("doctor", path, "--format", "json").stdout)}
    assert rows["artifacts-readable"]["status"] == "ok"
    assert rows["local-machine"]["status"] == "ok"
    assert rows["advisories"]["status"] == "ok", "nothing to do about the local SageMaker's own engine"


def test_a_check_is_skipped_by_its_id_alone(peagle: Run, spec: Callable[..., str]) -> None:
    path = spec("doctored", SM_VLLM_TRUST_REMOTE_CODE="true")
    assert peagle("deploy", path, "--dry-run").exit_code == 3
    assert peagle("deploy", path, "--dry-run", "--skip-check", "forbidden-flags").exit_code == 0
    wrong = peagle("deploy", path, "--dry-run", "--skip-check", "forbidden")
    assert (wrong.exit_code, "allowed: an id of a check" in wrong.stderr) == (2, True)


def test_a_deploy_refuses_before_anything_is_made(peagle: Run, server: Server, in_empty_folder: Path) -> None:
    path = in_empty_folder / "early.yaml"
    path.write_text("name: early\nmodel: tiny-code\nmodel_uri: s3://no-such-bucket-here/target/\n")
    result = peagle("deploy", str(path), "--unguarded", "--yes")
    assert result.exit_code == 3
    assert "artifacts-readable: model_uri: s3://no-such-bucket-here/target/" in result.stderr
    assert "--skip-check artifacts-readable" in result.stderr
    names = [row["ModelName"] for row in server.client("sagemaker").list_models()["Models"]]
    assert not [name for name in names if name.startswith("early")]
