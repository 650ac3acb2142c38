"""`peagle-sm packs` and the options of packs: what is listed, and what is refused with which next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.commands.packs import failure_of, render_packs
from peagle_bench.packs import PACKS
from peagle_bench.results.records import Header, PackRecord
from peagle_bench.results.result_file import Outcome, Results
from tests.cli.running import run

PAIR = ("http://127.0.0.1:9", "http://127.0.0.1:10")


def test_the_list_fits_a_terminal_and_names_every_pack() -> None:
    result = run("packs")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert [block.splitlines()[0] for block in result.stdout.split("\n\n")] == list(PACKS)
    for word in ("shows", "passes", "finds", "needs"):
        assert result.stdout.count(f"\n{word} ") == len(PACKS)


def test_the_list_as_json_and_as_names() -> None:
    document = json.loads(run("packs", "--format", "json").stdout)
    assert [pack["name"] for pack in document] == list(PACKS)
    assert all(isinstance(pack["needs"], list) and pack["least_context"] for pack in document)
    assert run("packs", "--format", "quiet").stdout.split() == list(PACKS)


@pytest.mark.parametrize(
    ("arguments", "says", "then"),
    [
        (
            ("compare", *PAIR, "--packs", "rga"),
            "there is no workload pack 'rga'; packs: rag",
            "peagle-sm packs",
        ),
        (
            ("compare", *PAIR, "--packs", "all,rag"),
            "--packs: found 'all,rag'; allowed: all alone",
            "give --packs all, or the names",
        ),
        (
            ("compare", "--modes", "p-eagle,eagle3", "--packs", "rag"),
            "--modes eagle3,p-eagle deploys none",
            "give --modes none,eagle3,p-eagle",
        ),
        (("compare", *PAIR, "--packs", ","), "--packs: found ','", "--packs rag,agents"),
        (
            ("compare", *PAIR, "--packs", "rag", "--workload", "mt-bench"),
            "--workload cannot be used",
            "leave out",
        ),
        (
            ("compare", *PAIR, "--packs", "all", "--concurrency", "8"),
            "--concurrency cannot be used",
            "leave out",
        ),
        (("compare", *PAIR, "--context", "480"), "--context is for workload packs", "give a pack"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...], says: str, then: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    text = " ".join(result.stderr.split())
    assert says in text
    assert then in text


def rows() -> list[PackRecord]:
    return [
        PackRecord("rag", "fast", "plain", True, "acceptance 4.10 at 98 tokens", "all is well"),
        PackRecord(
            "agents",
            "fast",
            "plain",
            False,
            "",
            "prefix cache: no hits",
            examples=("turn 2: 0 of 493 tokens",),
        ),
        PackRecord("long-context", "fast", "plain", None, "", "no room; give more"),
    ]


def test_the_scorecard_has_a_row_a_pack() -> None:
    results = Results(Header("r", "packs", {}, {}, stand_in_weights=False), packs=tuple(rows()))
    shown = render_packs(Outcome(Path("r.jsonl"), results, ()))
    _, *scores = [line.split() for line in shown.splitlines()[:4]]
    assert [(score[0], score[1]) for score in scores] == [
        ("rag", "pass"),
        ("agents", "FAIL"),
        ("long-context", "not"),
    ]
    assert "turn 2: 0 of 493 tokens" in shown
    assert "1 of 3 workload packs passed; failed: agents; not measured: long-context" in shown


def test_a_failed_pack_ends_with_its_own_exit_code() -> None:
    failed = failure_of(rows(), Path("r.jsonl"))
    assert failed is not None
    assert failed.exit_code == 9
    assert failed.details["failed"] == ["agents"]
    assert failure_of([rows()[0], rows()[2]], Path("r.jsonl")) is None
