"""A tuning that was interrupted anywhere continues with the same windows as one that was not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_bench.results.records import Mode, Reading
from peagle_bench.results.result_file import from_line, to_line
from peagle_bench.tune.strategy import by_deployments, in_one_engine
from peagle_bench.tune.windows import Measured, Resumed, WindowProgress, WindowReader
from peagle_sm.core.errors import SpecError
from tests.bench.tune.reading_of import reading

LOADS = (1, 8)


@dataclass
class Drifting:
    """A side whose every window reads otherwise; each goes into the file."""

    mode: Mode
    file: list[Reading]

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        step = 4.0 if k == 0 else 5.0 + 0.1 * k + (2.0 * (k - 5) if k > 5 else 0.0)
        noise = 1 + 0.01 * ((37 * len(self.file)) % 11) / 11
        result = reading(k, step_ms=step * noise, concurrency=concurrency, block=block, first=0.9)
        self.file.append(replace(result, mode=self.mode, untrusted=f"late {len(self.file)}"))
        return self.file[-1]


Tune = Callable[[list[Any], Measured], list[Reading]]


def sides_of(file: list[Any], measured: Measured) -> tuple[Resumed, Resumed]:
    window_progress, late = WindowProgress(None, 0), list[str]()
    return (
        Resumed("p-eagle", measured, Drifting("p-eagle", file), file.append, window_progress, late),
        Resumed("none", measured, Drifting("none", file), file.append, window_progress, late),
    )


def silent(message: str) -> None:
    pass


def tune_in_one_engine(file: list[Any], measured: Measured) -> list[Reading]:
    side, plain = sides_of(file, measured)
    twice = [in_one_engine(side, plain, LOADS, 8, silent) for _ in range(2)]  # two modes share the baseline
    return [reading for readings in twice for reading in readings]


def tune_by_deployments(file: list[Any], measured: Measured) -> list[Reading]:
    side, plain = sides_of(file, measured)

    @contextmanager
    def bring(k: int) -> Iterator[WindowReader]:
        known = measured.has_all("p-eagle", k, LOADS)
        yield Resumed("p-eagle", measured, None, file.append, WindowProgress(None, 0), []) if known else side

    return by_deployments(bring, plain, LOADS, 8, silent, most=4, beside=True)[0]


@pytest.mark.parametrize("tune", [tune_in_one_engine, tune_by_deployments])
@given(share=st.floats(0, 1))
@settings(max_examples=15, deadline=None)
def test_what_is_measured_is_not_measured_again_and_the_rest_is_the_same(tune: Tune, share: float) -> None:
    whole: list[Any] = []
    wanted = tune(whole, Measured())
    kept = [from_line(to_line(record)) for record in whole[: int(share * len(whole))]]
    assert all(isinstance(record, Reading) for record in kept)
    file = [record for record in kept if isinstance(record, Reading)]
    again: list[Any] = []
    assert tune(again, Measured(file)) == wanted
    assert again == whole


def test_a_window_that_cannot_be_published_is_still_one_after_resuming() -> None:
    late: list[str] = []
    record = replace(reading(3, step_ms=5.0), mode="p-eagle", untrusted="the client was late")
    Resumed("p-eagle", Measured([record]), None, print, WindowProgress(None, 1), late).read(3, 1, 0)
    assert late == ["the client was late"]


def test_a_window_that_is_missing_is_an_error_where_nothing_is_deployed() -> None:
    with pytest.raises(SpecError, match=r"the results file has no window of p-eagle K=3 c=1 in round 0"):
        Resumed("p-eagle", Measured(), None, print, WindowProgress(None, 1), []).read(3, 1, 0)
