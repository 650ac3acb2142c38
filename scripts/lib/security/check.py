"""`scripts/security-check`: known advisories, pip-audit, and checkov over templates and image files.

A tool that cannot run here is named on stderr as NOT RUN HERE.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sagemaker_local.engine.locked_env import ensure_locked
from scripts.lib.hash_locks import ROOT
from scripts.lib.security import advisories
from scripts.lib.security.advisories import Pins

LOCK = ROOT / "requirements" / "security.lock"
CHECKOV_CONFIG = ROOT / "requirements" / "checkov.yaml"
OLD_AFTER_DAYS = 30
PROBE = "jinja2==3.1.2"
"""A version with advisories since 2024: an index that has none for it has no advisories."""


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def snapshot_faults(pins: Pins, today: dt.date) -> list[str]:
    """Return the pins with an advisory of the snapshot and no waiver, and the waivers that nothing needs."""
    dated, known = advisories.read_snapshot()
    waivers = advisories.read_waivers()
    hits = advisories.snapshot_hits(pins, known)
    faults = [f"no waiver in force: {hit}" for hit in advisories.unwaived(hits, waivers, today)]
    faults += [
        f"waiver that nothing needs, take it out: {waiver.id} for {waiver.where}"
        for waiver in waivers
        if not any(waiver.covers(hit) for hit in hits)
    ]
    say(
        f"snapshot: {sum(map(len, pins.values()))} pins, {len(known)} advisories of {dated}, {len(hits)} hits"
    )
    # This alone must not fail a build in which nothing has changed.
    if (age := (today - dated).days) > OLD_AFTER_DAYS:
        say(f"warning: the snapshot is {age} days old")
    return faults


def requirement_texts(pins: Pins) -> list[str]:
    """Return each pinned version once, in texts that have each package at most once, as pip-audit wants."""
    lines: dict[str, list[str]] = {}
    for package, version in sorted(set().union(*pins.values())):
        lines.setdefault(package, []).append(f"{package}=={version}\n")
    return ["".join(filter(None, each)) for each in zip_longest(*lines.values())]


def run_pip_audit(command: Sequence[str], requirements: str) -> list[dict[str, Any]]:
    """Return the packages of pip-audit's report.

    Raises:
        ValueError: it made none; the message is pip-audit's.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
        command = [*command, *options, "--requirement", file.name]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout.startswith("{"):
        raise ValueError((ran.stderr.strip().splitlines() or ["no output"])[-1][:300])
    rows: list[dict[str, Any]] = json.loads(ran.stdout)["dependencies"]
    return rows


def audit_faults(command: Sequence[str], pins: Pins, today: dt.date) -> list[str]:
    """Return what pip-audit finds without a waiver in force; say so if it cannot audit here."""
    try:
        (probe,) = run_pip_audit(command, PROBE)
        if not probe.get("vulns"):
            raise ValueError(probe.get("skip_reason", f"the index has no advisory for {PROBE}"))
        rows = [row for text in requirement_texts(pins) for row in run_pip_audit(command, text)]
    except ValueError as error:
        say(f"pip-audit: NOT RUN HERE: {error}")
        return []
    for row in rows:
        if "skip_reason" in row:
            say(f"pip-audit: not audited: {row['skip_reason']}")
    hits = advisories.audit_hits(pins, rows)
    say(f"pip-audit: {sum('skip_reason' not in row for row in rows)} pinned versions, {len(hits)} hits")
    return [f"pip-audit: {hit}" for hit in advisories.unwaived(hits, advisories.read_waivers(), today)]


def synthesise(folder: Path) -> None:
    """Write the templates of the guard and of every example into a folder, by the CDK app; about 10 s.

    Raises:
        subprocess.CalledProcessError: the app failed; its output was printed.
    """
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context["spec"] = ",".join(map(str, sorted((ROOT / "docs" / "examples").glob("*.yaml"))))
    settings = {"CDK_VALIDATION": "false", "CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(folder)}
    command = [sys.executable, "app.py"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, stdout=sys.stderr, check=True)


def checkov_faults(python: Path, folder: Path) -> list[str]:
    """Return what checkov finds in a folder of templates and Dockerfiles, or that it looked at nothing."""
    checkov = [str(python), "-m", "checkov.main", "--config-file", str(CHECKOV_CONFIG), "--output", "json"]
    command = [*checkov, "--directory", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        reports = {each["check_type"]: each for each in json.loads(ran.stdout)}
        checked = {kind: reports[kind]["summary"] for kind in ("cloudformation", "dockerfile")}
    except (ValueError, KeyError, TypeError):
        return [f"checkov failed: {(ran.stderr or ran.stdout).strip()[-300:]}"]
    faults = [
        f"checkov, {kind}: {each['passed']} passed, {each['parsing_errors']} files not parsed"
        for kind, each in checked.items()
        if not each["passed"] or each["parsing_errors"]
    ]
    say("; ".join(f"checkov, {kind}: {each['passed']} passed" for kind, each in checked.items()))
    return faults + [
        f"checkov: {each['check_id']} {each['check_name']}: {each['file_path']} {each['resource']}"
        for report in reports.values()
        for each in report["results"]["failed_checks"]
    ]


def main(arguments: Sequence[str], today: dt.date) -> int:
    """Print the faults; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="scripts/security-check", description=__doc__)
    parser.add_argument("--snapshot", action="store_true", help="compare with the snapshot alone")
    options = parser.parse_args(arguments)
    pins = advisories.pinned()
    faults = snapshot_faults(pins, today)
    if not options.snapshot:
        python = ensure_locked("security", LOCK, "about a minute, 300 MB", say)
        faults += audit_faults([str(python), "-m", "pip_audit"], pins, today)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            synthesise(folder)
            for file in (ROOT / "container").glob("Dockerfile*"):
                if file.suffix != ".dockerignore":
                    shutil.copy(file, folder)
            faults += checkov_faults(python, folder)
    for fault in faults:
        print(fault)
    say(f"security-check: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dt.datetime.now(dt.UTC).date()))
