"""A tuning by load that was interrupted: complete windows and validated loads are not measured again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.load import WorkItem
from peagle_bench.results.records import (
    FitRecord,
    Interval,
    Mode,
    Record,
    TableCheck,
    TableRecord,
    ValidationRecord,
    WindowRecord,
)
from peagle_bench.results.result_file import from_line, to_line
from peagle_bench.tune.estimate import Settings
from peagle_bench.tune.job import Job, check
from peagle_bench.tune.loads import conclude_loads
from peagle_bench.tune.readings import Reading, window_record
from peagle_bench.tune.run import Tuned, Tuning
from peagle_bench.tune.strategy import in_one_engine
from peagle_bench.tune.validate import Validation, validated_loads
from peagle_bench.tune.windows import Measured, WindowSize
from peagle_bench.workloads import Workload
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from tests.bench.tune.reading_of import reading

LOADS, MAX_K = (1, 8), 8
SPEC = EndpointSpec(name="demo", model="tiny-code", speculation={"mode": "p-eagle"})


class Deployed(Exception):
    """Something was to be deployed."""


class NoSession:
    """A session that ends the test as soon as it is used."""

    is_local = True

    def __getattr__(self, name: str) -> Any:
        raise Deployed(name)


@dataclass
class Engine:
    """At one request in flight a large K is the best, at eight a small one."""

    mode: Mode
    file: list[WindowRecord] = field(default_factory=list)

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        over = max(0, concurrency * (k + 1) - 16)
        step = (4.0 if self.mode == "none" else 4.4) * (1 + 0.05 * over) * (1 + 0.001 * (len(self.file) % 3))
        found = reading(k, step_ms=step, concurrency=concurrency, block=block, first=0.85)
        self.file.append(window_record(self.mode, found, None))
        return found


def measured_before() -> tuple[list[WindowRecord], TableRecord]:
    """The windows of a run, as a file gives them back, and the table and the K that they lead to."""
    engine, plain = Engine("p-eagle"), Engine("none")
    readings = in_one_engine(engine, plain, LOADS, MAX_K, lambda line: None, drafts_off=True)
    result = conclude_loads("p-eagle", *readings)
    windows = [from_line(to_line(one)) for one in (*engine.file, *plain.file)]
    kept = [one for one in windows if isinstance(one, WindowRecord)]
    return kept, TableRecord("p-eagle", result.table.rows, result.fixed.common.k, True, "")


def validated(table: TableRecord, verdicts: tuple[str, ...]) -> list[ValidationRecord]:
    checks = [
        TableCheck(load, Interval(1.0, 0.99, 1.01), verdict, 48, 48)  # type: ignore[arg-type]
        for load, verdict in zip(validated_loads(LOADS), verdicts, strict=False)
    ]
    lines = [to_line(ValidationRecord("p-eagle", table.rows, table.fixed_k, check)) for check in checks]
    return [one for line in lines if isinstance(one := from_line(line), ValidationRecord)]


def resumed(
    windows: list[WindowRecord], checks: list[ValidationRecord]
) -> tuple[Tuned, list[Record], list[str]]:
    settings = Settings(
        modes=("p-eagle",),
        concurrencies=LOADS,
        max_k=MAX_K,
        runtime=True,
        most_deployments=4,
        rounds=3,
        size=WindowSize(4),
        unguarded=True,
        by_load=True,
    )
    records: list[Record] = []
    said: list[str] = []
    tuning = Tuning(
        base=SPEC,
        settings=settings,
        items=[WorkItem("p", {"prompt": "p"})],
        session=NoSession(),  # type: ignore[arg-type]
        salt="salt",
        sink=records.append,
        tell=said.append,
        measured=Measured(windows),
        validated=checks,
    )
    return tuning.run(), records, said


def test_the_engines_differ_enough_for_a_table() -> None:
    _, table = measured_before()
    assert len(table.rows) == 2
    assert table.rows[0][2] > table.rows[1][2]


@pytest.mark.parametrize(
    "verdicts", [("as fast", "as fast", "as fast"), ("as fast", "slower"), ("not decided",)]
)
def test_nothing_is_deployed_when_all_is_measured(verdicts: tuple[str, ...]) -> None:
    windows, table = measured_before()
    tuned, records, said = resumed(windows, validated(table, verdicts))
    (found,) = tuned.tables
    assert (found.rows, found.fixed_k) == (table.rows, table.fixed_k)
    assert found.accepted == (len(verdicts) == 3)
    assert [check.verdict for check in found.checks] == list(verdicts)
    assert {type(record) for record in records} == {FitRecord, TableRecord}
    assert said[-1] == "p-eagle: the table is already validated"


def test_the_rest_is_deployed() -> None:
    windows, table = measured_before()
    every = validated(table, ("as fast", "as fast", "as fast"))
    for kept, checks in (
        (windows[:-1], every),  # a window is missing
        (windows, every[:2]),  # a load is not validated
        (windows, [replace(one, fixed_k=one.fixed_k + 1) for one in every]),  # of another K
        (windows, [replace(one, rows=((1, 1024, 3),)) for one in every]),  # of another table
    ):
        with pytest.raises(Deployed):
            resumed(kept, checks)


def test_a_validation_goes_on_after_the_known_loads() -> None:
    loads = validated_loads((1, 2, 8))
    known = [TableCheck(load, Interval(1.0, 0.99, 1.01), "as fast") for load in loads[:2]]
    given: list[TableCheck] = []
    looked: list[tuple[str, int]] = []

    class Counted(Validation):
        def _check(self, load: Any, loads: int) -> TableCheck:
            looked.append((load.label, loads))
            return TableCheck(load, Interval(0.9, 0.89, 0.91), "slower")

    empty: Any = None
    validation = Counted(empty, empty, empty, (), 4, empty, "", empty, on_check=given.append)
    found = validation.checks(loads, known)
    assert looked == [("c=2", 4)]  # corrected for all loads; the last one is not needed
    assert [check.verdict for check in found] == ["as fast", "as fast", "slower"]
    assert given == list(found[2:])


@pytest.mark.parametrize("loads", [(0, 4), (-1, 4), (1, 5000)])
def test_a_load_that_cannot_be_is_refused_from_a_notebook_too(loads: tuple[int, int]) -> None:
    """The command line refuses them when it reads the option."""
    settings = Settings(
        modes=("p-eagle",),
        concurrencies=loads,
        max_k=MAX_K,
        runtime=True,
        most_deployments=4,
        rounds=2,
        size=WindowSize(4),
        by_load=True,
    )
    workload = Workload("made up", (WorkItem("p", {"prompt": "p"}),), None, None, "here", 1)
    with pytest.raises(SpecError, match=r"--loads: found -?\d+; allowed: 1 to 1,024"):
        check(Job(SPEC, None, settings, workload, 8, Path("r.jsonl")))
