"""A run of packs in virtual time: its rows, its file, what it sends, and every way it can end early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.load import WorkItem
from peagle_bench.packs import PACKS, load_pack
from peagle_bench.packs.judges import acceptance_by, falls, part_of
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork
from peagle_bench.packs.run import PackDependencies, PackOptions, run_packs
from peagle_bench.results.result_file import Outcome, read
from peagle_sm.core.errors import Interrupted, ServiceFault
from tests.bench.compare.test_run import Play

PARTS = ("near", "far")


class Tokens:
    """An engine that answers what packs ask beside their requests; its chat template knows no efforts."""

    def __init__(self, name: str, *, dead: bool = False) -> None:
        self.name, self.dead = name, dead
        self.log_hint = ""

    def ask(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.dead:
            raise ServiceFault("connection refused")
        ids = list(range(len(str(body.get("prompt", body.get("messages")))) // 4 + 1))
        return {"choices": [{"text": "x", "finish_reason": "length"}], "prompt_token_ids": ids}

    def stream(self, body: Mapping[str, Any], until: Any = None) -> list[Mapping[str, Any]]:
        raise AssertionError("nothing is streamed here")


def make(asked: Make) -> PackWork:
    items = [
        WorkItem(f"{unit}/{part}", {"prompt": f"{asked.seed} {unit}", "max_tokens": 8}, share=f"{unit}")
        for unit in range(asked.units or 8)
        for part in PARTS
    ]
    return PackWork(tuple(items), ("mind this",))


def judge(observed: Observed) -> Judgement:
    checks = {
        "position": falls(observed.requests, PARTS, alpha=observed.alpha, by="{}"),
    }
    return Judgement(checks, f"{acceptance_by(observed.requests, part_of)['near']:.2f}")


PACK = Pack("text", "text", "text", "text", ("nothing",), make, judge)


class PackPlay(Play):
    """A run of packs on the two simulated endpoints."""

    def __init__(self, folder: Path, *, dead: Sequence[str] = (), context: int = 4096, **more: Any) -> None:
        super().__init__(folder, **more)
        self.dead, self.context = dead, context

    def packs(self, *packs: Pack, **options: Any) -> Outcome:
        described = [replace(arm, context=self.context) for arm in self.arms(0)]
        around = PackDependencies(self.around(), lambda arm: Tokens(arm.endpoint, dead=arm.name in self.dead))
        return run_packs([nullcontext(described)], packs, self.path, PackOptions(**options), around)


def test_each_pack_is_a_row_beside_the_arm_without_speculation(tmp_path: Path) -> None:
    play = PackPlay(tmp_path)
    result = play.packs(PACK, replace(PACK, name="second"), units=9)
    rows = result.results.packs
    assert [(row.pack, row.arm, row.baseline, row.passed) for row in rows] == [
        ("text", "p-eagle", "none", True),
        ("second", "p-eagle", "none", True),
    ]
    assert [check.name for check in rows[0].checks] == ["answered", "position", "identity"]
    assert rows[0].requests == 18
    assert result.notes == ("mind this",)
    assert result.results.header.command == "packs"
    assert all(request.text is None for request in result.results.requests)


def test_requests_of_a_unit_share_the_cache_and_those_of_arms_packs_and_runs_do_not(tmp_path: Path) -> None:
    play = PackPlay(tmp_path)
    play.packs(PACK, replace(PACK, name="second"), units=2)
    salts: dict[str, set[tuple[str, str]]] = {}
    for place, (arm, body) in enumerate(play.engines.bodies):
        salts.setdefault(body["cache_salt"], set()).add((arm, body["prompt"], str(place >= 10)))  # type: ignore[arg-type]
    measured = {salt: users for salt, users in salts.items()}
    assert len(measured) == 2 * (2 * 2 + 2)  # packs, each: arms and units, and a warm-up of each arm
    assert all(len(users) == 1 for users in measured.values())


def test_a_pack_that_cannot_be_measured_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    def refuse(asked: Make) -> PackWork:
        raise PackNotMeasured("its file is missing", next_step="give it")

    result = PackPlay(tmp_path).packs(replace(PACK, make=refuse), replace(PACK, name="second"))
    first, second = result.results.packs
    assert (first.passed, first.why) == (None, "its file is missing; give it")
    assert second.passed is True


def test_too_short_a_context_is_not_measured(tmp_path: Path) -> None:
    result = PackPlay(tmp_path, context=100).packs(PACK)
    assert result.results.packs[0].passed is None
    assert "needs a context of 256 tokens; this one has 100" in result.results.packs[0].why
    limited = PackPlay(tmp_path / "b").packs(PACK, context=200)
    assert "this one has 200" in limited.results.packs[0].why


def test_an_arm_that_fails_a_pack_s_requests_fails_the_pack_if_it_is_alive(tmp_path: Path) -> None:
    result = PackPlay(tmp_path, dies_after={"p-eagle": 9}).packs(PACK, units=12)
    (row,) = result.results.packs
    assert row.passed is False
    assert [check.name for check in row.checks if check.passed is False] == ["answered"]
    assert row.examples


def test_an_arm_that_died_ends_the_run_and_finished_rows_are_kept(tmp_path: Path) -> None:
    play = PackPlay(tmp_path, dies_after={"p-eagle": 20}, dead=["p-eagle"])
    with pytest.raises(ServiceFault, match="stopped answering") as caught:
        play.packs(PACK, replace(PACK, name="second"))
    assert "1 finished row" in caught.value.message
    assert len(read(play.path).packs) == 1


def test_how_much_goes_to_each_arm_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    play = PackPlay(tmp_path)
    play.packs(PACK, replace(PACK, name="second"), units=9)
    lines = [event.message for event in play.events]
    (size,) = [at for at, message in enumerate(lines) if message.startswith("to each arm ")]
    assert lines[size].startswith("to each arm at least 36 requests with about ")
    assert size < next(at for at, message in enumerate(lines) if message.startswith("pack text"))


def test_a_pack_that_demands_no_identity_pays_for_none(tmp_path: Path) -> None:
    (row,) = PackPlay(tmp_path).packs(replace(PACK, identity=False)).results.packs
    assert [check.name for check in row.checks] == ["answered", "position"]
    assert [name for name in PACKS if not load_pack(name).identity] == ["structured-output"]


def test_ctrl_c_keeps_the_finished_rows(tmp_path: Path) -> None:
    play = PackPlay(tmp_path, interrupt_after=45)
    with pytest.raises(Interrupted, match="1 finished row") as caught:
        play.packs(PACK, replace(PACK, name="second"))
    assert "peagle-sm report" in (caught.value.next_step or "")
    assert len(read(play.path).packs) == 1


def test_ctrl_c_before_the_first_row_offers_no_empty_report(tmp_path: Path) -> None:
    play = PackPlay(tmp_path, interrupt_after=9)
    with pytest.raises(Interrupted, match="0 finished rows") as caught:
        play.packs(PACK)
    assert caught.value.next_step == (
        f"run the command again with a new --out: no pack was finished, {play.path} can go"
    )
