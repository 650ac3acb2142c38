"""The check of known advisories: what is pinned, and that it fails where it must."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lib.security import check
from scripts.lib.security.advisories import (
    Hit,
    Waiver,
    audit_hits,
    pinned,
    read_snapshot,
    read_waivers,
    snapshot_hits,
    unwaived,
)

DAY = dt.date(2026, 11, 22)
WAIVER = Waiver("GHSA-a", "thing", "a.lock", "not reachable", dt.date(2027, 1, 31))
HIT = Hit("a.lock", "thing", "1.5", ("PYSEC-1", "GHSA-a"), "it breaks")


def test_nothing_that_is_pinned_is_affected_without_a_waiver_in_force() -> None:
    """On the snapshot's own day: scripts/test compares on the real day, as a step of its own."""
    created, known = read_snapshot()
    hits = snapshot_hits(pinned(), known)
    waivers = read_waivers()
    assert unwaived(hits, waivers, created) == []
    assert [waiver for waiver in waivers if not any(waiver.covers(hit) for hit in hits)] == []


def test_the_snapshot_knows_the_engine_of_a_year_ago_and_links_each_advisory() -> None:
    _, known = read_snapshot()
    ids = {each for hit in snapshot_hits({"old": [("vllm", "0.10.1")]}, known) for each in hit.ids}
    assert {"GHSA-2pc9-4j83-qjmr", "GHSA-3mwp-wvh9-7528"} <= ids
    assert [row["id"] for row in known if not row["url"].startswith("https://")] == []


def test_every_lock_and_every_image_of_a_plan_is_compared() -> None:
    places = pinned()
    assert {"container/engine-cpu.lock", "requirements/security.lock", "AWS's image, by default"} <= set(
        places
    )
    engines = {*places["AWS's image, JumpStart's gpt-oss-20b"], *places["container/engine-cpu.lock"]}
    assert {"0.18.0", "0.32.0"} <= {version for package, version in engines if package == "vllm"}


@pytest.mark.parametrize(
    ("affected", "inside", "outside"),
    [
        ([">=1.0,<2.0"], ["1.0", "1.9.9"], ["0.9", "2.0"]),
        ([""], ["0.1", "99rc1"], []),
        (["<=1.5", "==3.0"], ["1.5", "3.0"], ["1.5.1"]),
    ],
)
def test_which_versions_an_advisory_affects(
    affected: list[str], inside: list[str], outside: list[str]
) -> None:
    row = {"id": "GHSA-a", "package": "thing", "affected": affected, "summary": "", "url": ""}
    pins = {"a.lock": [("thing", version) for version in inside + outside] + [("other", inside[0])]}
    assert {hit.version for hit in snapshot_hits(pins, [row])} == set(inside)


def test_a_waiver_holds_for_its_place_and_advisory_until_its_day() -> None:
    assert unwaived([HIT], [], DAY) == [HIT]
    assert unwaived([HIT], [WAIVER], dt.date(2027, 1, 30)) == []
    assert unwaived([HIT], [WAIVER], dt.date(2027, 1, 31)) == [HIT]
    elsewhere = Hit("b.lock", "thing", "1.5", ("GHSA-a",), "")
    another = Hit("a.lock", "thing", "1.5", ("GHSA-b",), "")
    assert unwaived([elsewhere, another], [WAIVER], DAY) == [elsewhere, another]


@pytest.mark.parametrize("changes", [{"reason": ""}, {"expires": None}, {"expires": "soon"}, {"ids": []}])
def test_a_waiver_without_a_reason_or_a_day_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    row = {"ids": ["GHSA-a"], "package": "thing", "where": "a.lock", "reason": "r", "expires": DAY, **changes}
    (tmp_path / "waivers.yaml").write_text(yaml.safe_dump([row]))
    with pytest.raises(ValueError, match=next(iter(changes))):
        read_waivers(tmp_path / "waivers.yaml")


def test_pip_audits_report_is_read_by_place() -> None:
    vulnerability = {"id": "PYSEC-1", "aliases": ["GHSA-a"], "fix_versions": ["2.0"], "description": ""}
    rows: list[dict[str, Any]] = [
        {"name": "thing", "version": "1.5", "vulns": [vulnerability]},
        {"name": "other", "skip_reason": "not on PyPI"},
        {"name": "third", "version": "1", "vulns": []},
    ]
    pins = {"a.lock": [("thing", "1.5"), ("third", "1")], "b.lock": [("thing", "2.0")]}
    assert [(hit.where, hit.ids) for hit in audit_hits(pins, rows)] == [("a.lock", ("PYSEC-1", "GHSA-a"))]


def test_pip_audit_gets_each_pinned_version_once() -> None:
    pins = {"a": [("thing", "1"), ("other", "1")], "b": [("thing", "2"), ("other", "1")]}
    assert check.requirement_texts(pins) == ["other==1\nthing==1\n", "thing==2\n"]


def stand_in(tmp_path: Path, answers: dict[str, Any] | None) -> list[str]:
    """A command in pip-audit's place: it has a report for each package, or fails without one."""
    program = tmp_path / "pip_audit.py"
    program.write_text(
        "import json, sys\n"
        f"answers = json.loads({json.dumps(answers)!r})\n"
        "names = [line.split('==')[0] for line in open(sys.argv[-1])]\n"
        "if answers is None: sys.exit('no route to the index')\n"
        "print(json.dumps({'dependencies': [answers[name] for name in names]}))\n"
    )
    return [sys.executable, str(program)]


_VULNERABLE = [{"id": "GHSA-a", "aliases": [], "fix_versions": []}]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (None, "no route to the index"),
        ({"jinja2": {"name": "jinja2", "skip_reason": "not found on PyPI"}}, "not found on PyPI"),
        ({"jinja2": {"name": "jinja2", "version": "3.1.2", "vulns": []}}, "has no advisory for jinja2"),
    ],
)
def test_an_audit_that_cannot_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answers: dict[str, Any] | None, reason: str
) -> None:
    command = stand_in(tmp_path, answers)
    assert check.audit_faults(command, {"a.lock": [("thing", "1.5")]}, DAY) == []
    message = capsys.readouterr().err
    assert "NOT RUN HERE" in message
    assert reason in message


def test_an_audit_fails_for_what_has_no_waiver(tmp_path: Path) -> None:
    jinja = {"name": "jinja2", "version": "3.1.2", "vulns": _VULNERABLE}
    thing = {"name": "thing", "version": "1.5", "vulns": _VULNERABLE}
    command = stand_in(tmp_path, {"jinja2": jinja, "thing": thing})
    (fault,) = check.audit_faults(command, {"a.lock": [("thing", "1.5")]}, DAY)
    assert "thing==1.5 in a.lock: GHSA-a" in fault
