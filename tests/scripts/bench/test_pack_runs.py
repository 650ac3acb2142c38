"""The record of the packs' runs and the page made of it, from requests made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.load import WorkItem
from peagle_bench.packs import PACKS, load_pack
from peagle_bench.packs.pack import PackWork
from peagle_bench.results.records import CheckRecord, PackRecord, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_sm.core.errors import SpecError
from scripts.bench.pack_figures import figures_of
from scripts.bench.pack_runs import SIZES, Pace, example, read_record
from scripts.reference_pages.pack_runs import pack_runs_page
from tests.bench.packs.making import asked
from tests.scripts.bench.making import ARMS, HEADER, request

PLAIN, EAGLE, P_EAGLE = (arm.name for arm in ARMS)
STEPS = (4, 0, 4)  #: of a head: half of its drafts accept two tokens


def rows(kind: str, seconds: Mapping[str, float], pack: str = "languages") -> list[RequestRecord]:
    """Six prompts of a kind; the first one has another answer with P-EAGLE."""
    requests = []
    for arm, each in seconds.items():
        for number in range(6):
            name = f"{kind}/{number:03}" if pack == "structured-output" else f"{number:03}/{kind}"
            other = "other" if arm == P_EAGLE and not number else "same"
            steps = () if arm == PLAIN else STEPS
            row = request(arm, name, each * (1 + number / 100), histogram=steps, output=other)
            requests.append(replace(row, category=kind))
    return requests


def results(requests: list[RequestRecord], pack: str = "languages") -> Results:
    checks = (CheckRecord("identity", EAGLE, PLAIN, True, "all <identical>", ""),)
    packs = tuple(
        PackRecord(pack, arm, PLAIN, passed, "figure", "why", checks)
        for arm, passed in ((EAGLE, True), (P_EAGLE, False))
    )
    return Results(HEADER, ARMS, tuple(requests), packs=packs)


def recorded(arms: Any, **more: object) -> dict[str, Any]:
    machine = {"cores": 2, "processor": "a CPU"}
    origin = {"date": "2026-11-28T12:00:00", "machine": machine, "git_revision": "abcdef"}
    origin["engine_versions"] = ["9"]
    shown = {"kind": "German", "mode": "p-eagle", "prompt": "Was ist\n\n`Regen`? ````", "answer": "w" * 2000}
    row = {"context": 1024, "units": 6, "seconds": 90.0, "figures_of": "M on a CPU", "provenance": origin}
    return {"packs": {"languages": {**row, "arms": arms, "example": shown, **more}}}


FAST = {PLAIN: 2.0, EAGLE: 1.0, P_EAGLE: 1.6}
SLOW = {PLAIN: 2.0, EAGLE: 2.5, P_EAGLE: 2.0}


def test_figures_are_by_kind_and_of_all() -> None:
    arms = json.loads(json.dumps(figures_of(results(rows("German", FAST) + rows("French", SLOW)))))
    assert list(arms) == ["eagle3", "p-eagle"]
    german, french = arms["eagle3"]["kinds"]["German"], arms["eagle3"]["kinds"]["French"]
    assert german["speed_up"]["value"] == pytest.approx(2)
    assert german["speed_up"]["low"] <= 2 <= german["speed_up"]["high"]
    assert french["speed_up"]["value"] == pytest.approx(0.8)
    assert german["acceptance_length"] == 2
    assert (german["requests"], german["units"], arms["eagle3"]["all"]["requests"]) == (6, 6, 12)
    same = arms["p-eagle"]["kinds"]["German"]
    assert (same["identical"], same["compared"]) == (5, 6)


@pytest.mark.parametrize(("pack", "units"), [("structured-output", 6), ("rag", 6)])
def test_units_are_prompts_or_the_groups_that_share_documents(pack: str, units: int) -> None:
    requests = rows("regex", FAST, pack)
    if pack == "rag":  # two questions of each group
        requests += [replace(row, prompt_id=f"{row.prompt_id}/again") for row in requests]
    assert figures_of(results(requests, pack))["eagle3"]["all"]["units"] == units


def test_the_page_says_first_where_speculation_loses() -> None:
    arms = figures_of(results(rows("German", FAST) + rows("French", SLOW)))
    page = pack_runs_page(recorded(arms))
    assert "M on a CPU" in page.splitlines()[2]
    losses, _, rest = page.partition("## All packs")
    assert "| languages | French | EAGLE-3 | 2.00 | 0.80x" in losses
    assert "German" not in losses
    _, _, section = rest.partition("## `languages`")
    assert section.strip().startswith("**Speculation loses**: French with EAGLE-3.")
    assert "| German | P-EAGLE | 2.00 | 1.25x" in section
    assert "| 5 of 6 |" in section
    assert "all \\<identical\\>" in section


def test_the_page_says_where_speculation_loses_nowhere() -> None:
    page = pack_runs_page(recorded(figures_of(results(rows("German", FAST)))))
    assert "No kind of prompt was significantly slower" in page
    assert "Speculation loses**" not in page


def test_an_example_is_short_and_has_no_meaning_in_markdown() -> None:
    page = pack_runs_page(recorded(figures_of(results(rows("German", FAST)))))
    _, _, shown = page.partition("An example, of the kind German:")
    assert "`````text\nWas ist\n\n`Regen`? ````\n`````" in shown
    assert "[...]" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "w" * 700 not in shown.replace("\n", "")


def test_packs_of_two_targets_have_no_page() -> None:
    record = recorded({})
    record["packs"]["rag"] = {**record["packs"]["languages"], "figures_of": "another"}
    with pytest.raises(ValueError, match="run scripts/pack-runs"):
        pack_runs_page(record)


def test_every_pack_has_a_size_and_an_example_that_a_person_can_read() -> None:
    assert list(SIZES) == list(PACKS)

    class Chat:
        name, log_hint = "chat", ""

        def ask(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
            answer = "Write to mara@feld.example today."
            return {"choices": [{"text": answer, "message": {"content": answer}}]}

        def stream(self, body: Mapping[str, Any], until: Any = None) -> Any:
            raise AssertionError("nothing is streamed here")

    for name, size in SIZES.items():
        shown = example(name, load_pack(name).make(asked(size.context, units=size.units)), Chat())
        assert 20 < len(shown["prompt"]) < 10_000, name
        assert shown["answer"].startswith("Write"), name
        assert shown.get("delivered", "Write to ") == "Write to ", name
    assert "Question: Quote" in example("long-context", long_text(), Chat())["prompt"]


def long_text() -> PackWork:
    item = WorkItem("0/1", {"prompt": [1] * 400, "max_tokens": 8}, category="quarter 1")
    return PackWork((item,), facts={"0/1": "Quote the sentence."})


def test_the_time_left_follows_the_packs_that_are_finished() -> None:
    now = [0.0]
    pace = Pace([60.0, 120.0], clock=lambda: now[0])
    assert pace.left() == "about 3 min left"
    now[0] = 120.0  # twice as long as expected
    pace.done()
    assert pace.left() == "about 4 min left"
    now[0] = 240.0
    assert pace.left() == "about 2 min left"


def test_a_record_is_continued_and_another_file_is_refused(tmp_path: Path) -> None:
    assert read_record(tmp_path / "none.json")["packs"] == {}
    kept = tmp_path / "runs.json"
    kept.write_text(json.dumps({"packs": {"rag": {}}}))
    assert "rag" in read_record(kept)["packs"]
    for text in ("[]", "no json", '{"runs": []}'):
        kept.write_text(text)
        with pytest.raises(SpecError, match=r"runs\.json is not a record") as caught:
            read_record(kept)
        assert "rm " in (caught.value.next_step or "")
