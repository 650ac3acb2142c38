"""The campaign of packs: which runs are left, what counts as found, and its page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import chain, repeat
from pathlib import Path
from threading import Barrier

import pytest
from jinja2 import Environment

from peagle_bench.packs import PACKS, load_pack
from peagle_bench.packs.reasoning import EFFORTS
from sagemaker_local.paths import weights_dir
from scripts.bench.packs import scorecard
from scripts.bench.packs.arms import CLEAN, OTHER, SHORT, specs, write_files
from scripts.bench.packs.campaign import PAGE, RECORD, PackRun, joined, read_runs, run_all, work_left
from scripts.bench.packs.cases import CASES, Case, speed_bench_file
from scripts.bench.packs.page import did_what_it_must, page
from scripts.bench.packs.scorecard import BEGIN, END, with_table

RUN = PackRun(
    "rag", CLEAN, 0, "pass", (), (), "all is well", "", 60, 9.5, "", "2026-11-24", "EPYC", "0123456789abcdef"
)


class Done:
    """Runs that end as they must."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, int]] = []

    def run(self, case: Case, arm: str, seed: int) -> PackRun:
        self.done.append((case.pack, arm, seed))
        return replace(RUN, pack=case.pack, arm=arm, seed=seed)


def test_a_campaign_goes_on_after_the_seeds_that_were_recorded() -> None:
    runs = [RUN, replace(RUN, seed=1), replace(RUN, arm=SHORT)]
    work = work_left(runs, ["rag"], clean=4, faulty=1)
    assert work == [("rag", OTHER, 0), ("rag", CLEAN, 2), ("rag", CLEAN, 3)]


def test_runs_are_kept_when_the_time_is_over() -> None:
    runs: list[PackRun] = []
    left = work_left([], ["rag", "agents"], clean=3, faulty=0)
    times = chain([False, False], repeat(True))
    run_all(Done(), runs, left, lambda line: None, lambda: next(times), lambda: None)  # type: ignore[arg-type]
    assert [(one.pack, one.seed) for one in runs] == [("agents", 0), ("rag", 0)]


class Watched(Done):
    """Runs that note how many are in flight; two of them can only end together."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = 0
        self.beside: dict[str, int] = {}
        self.pair = Barrier(2, timeout=30)

    def run(self, case: Case, arm: str, seed: int) -> PackRun:
        self.in_flight += 1
        self.beside[case.pack] = max(self.in_flight, self.beside.get(case.pack, 0))
        if not case.apart:
            self.pair.wait()
        self.in_flight -= 1
        return super().run(case, arm, seed)


def test_runs_share_the_engines_but_those_that_count_or_time_run_apart() -> None:
    watched = Watched()
    left = work_left([], ["rag", "guardrails", "adversarial"], clean=2, faulty=0)
    run_all(watched, [], left, lambda line: None, lambda: False, lambda: None, together=2)  # type: ignore[arg-type]
    assert watched.beside == {"rag": 2, "guardrails": 1, "adversarial": 1}
    assert sorted(watched.done) == sorted(left)


@pytest.mark.parametrize(
    ("change", "did"),
    [
        ({}, True),
        ({"result": "not measured"}, False),
        ({"arm": SHORT}, False),
        ({"arm": SHORT, "result": "fail", "failed": ("identity",)}, False),
        ({"arm": SHORT, "result": "fail", "failed": ("acceptance by length",)}, True),
        ({"pack": "speed-bench", "arm": "placeholders", "result": "not measured"}, False),
        (
            {"pack": "speed-bench", "arm": "placeholders", "result": "not measured", "why": "9 placeholders"},
            True,
        ),
    ],
)
def test_a_fault_counts_as_found_by_the_check_that_must_find_it(change: dict[str, object], did: bool) -> None:
    assert did_what_it_must(asdict(replace(RUN, **change))) is did  # type: ignore[arg-type]


def test_the_page_counts_runs_and_names_those_that_went_wrong(tmp_path: Path) -> None:
    runs = [RUN, replace(RUN, seed=1, result="fail", why="a|b"), replace(RUN, pack="agents")]
    runs += [replace(RUN, arm=SHORT, seed=seed, example=f"fell `{seed}`|") for seed in (1, 0)]
    runs.append(replace(RUN, seed=2, day="2026-11-25", revision="f" * 40 + "+changes"))
    written = page({"provenance": {"versions": {"python": "3.11"}}, "runs": [asdict(one) for one in runs]})
    assert f"| rag | {CLEAN} | pass | 3 | 2 | 480 | 60 | 9.5 |" in written
    assert f"| rag | {CLEAN} | 1 | fail | a/b |" in written
    assert f"| rag | {SHORT} | `fell '0'/` |" in written
    assert "| 2026-11-24 | EPYC | 0123456789ab | 4 rag, 1 agents |" in written
    assert f"| 2026-11-25 | EPYC | {'f' * 12}+changes | 1 rag |" in written
    assert "versions of the last run: python 3.11." in written
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"provenance": {}, "runs": [asdict(one) for one in runs]}))
    assert read_runs(path) == runs
    assert read_runs(tmp_path / "none.json") == []


def test_two_records_are_joined_without_doubles() -> None:
    other = replace(RUN, seed=1)
    assert joined([RUN], [replace(RUN, result="fail"), other]) == [RUN, other]


def test_the_shipped_page_is_that_of_the_shipped_record() -> None:
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(document)
    assert all(did_what_it_must(one) for one in document["runs"])


def test_the_scorecard_of_the_page_is_that_of_its_record() -> None:
    text = scorecard.PAGE.read_text(encoding="utf-8")
    assert with_table(text, scorecard.read()) == text
    assert {row["pack"] for row in scorecard.read()["rows"]} == set(PACKS)


def test_the_scorecard_shows_the_figure_of_a_pass_and_the_reason_otherwise() -> None:
    row = {
        "pack": "rag",
        "context": 2048,
        "passed": True,
        "figure": "acceptance 3.1",
        "why": "it holds",
        "checks": [
            {"name": "acceptance by length", "summary": "holds; 99 tokens: 0.8; more"},
            {"name": "identity", "summary": "3 of 4 answers identical; others"},
        ],
    }
    rows = [row, {**row, "context": None, "passed": False}, {**row, "passed": None, "checks": []}]
    told = {"date": "2026-11-26T10", "machine": {"cores": 2, "processor": "EPYC"}, "git_revision": "a" * 40}
    written = with_table(f"above\n{BEGIN}old\n{END}\nbelow\n", {"rows": rows, "provenance": told})
    assert written == (
        f"""above
{BEGIN}| pack | up to | result | figure | lowest against the first part | answers |
|---|---:|---|---|---|---|
| `rag` | 2,048 | pass | acceptance 3.1 | 99 tokens: 0.8 | 3 of 4 answers identical |
| `rag` | the model's limit | **fail** | it holds | 99 tokens: 0.8 | 3 of 4 answers identical |
| `rag` | 2,048 | not measured | it holds | - | - |

Measured on 2026-11-26 on 2 cores of EPYC, git aaaaaaaaaaaa; one deployment of each endpoint.
{END}
below
"""
    )


def test_every_pack_with_its_own_case_has_a_fault() -> None:
    assert set(CASES) <= set(PACKS)
    for case in CASES.values():
        assert case.faults
        assert case.context >= load_pack(case.pack).least_context


def test_the_file_of_made_up_rows_has_as_many_placeholders_as_asked(tmp_path: Path) -> None:
    path = speed_bench_file(tmp_path / "rows.jsonl", placeholders=494, seed=0)
    assert path.read_text().count("FULL BENCHMARK DATA") == 494


def test_more_effort_puts_more_text_before_the_question_and_none_changes_nothing(tmp_path: Path) -> None:
    path = Path(specs(write_files(tmp_path))[CLEAN].serving.env["SM_VLLM_CHAT_TEMPLATE"])
    written, own = path.read_text(), (weights_dir() / "target" / "chat_template.jinja").read_text()
    messages = [{"role": "user", "content": "How many?"}]

    def prompt(template: str, **more: object) -> str:
        return Environment().from_string(template).render(messages=messages, **more)

    assert prompt(written) == prompt(written, reasoning_effort=None) == prompt(own) == "How many?\n"
    prompts = [prompt(written, reasoning_effort=effort) for effort in EFFORTS]
    assert [text.split("\n")[0] for text in prompts] == [f"Reasoning: {effort}" for effort in EFFORTS]
    assert [text.count("\n") for text in prompts] == [2, 6, 11]
    assert all(text.endswith("\nHow many?\n") for text in prompts)


def test_the_damage_is_a_plugin_beside_the_engine_s_own(tmp_path: Path) -> None:
    made = specs(write_files(tmp_path))
    compile((tmp_path / "peagle_damage.py").read_text(), "peagle_damage.py", "exec")
    assert made[SHORT].serving.env["PEAGLE_DAMAGE"].startswith("head:")
    assert "PEAGLE_DAMAGE" not in made[CLEAN].serving.env
