"""The job's lines: what CloudWatch's metric definitions find in them, and figures by depth."""

from __future__ import annotations

import re

from peagle_train.progress import Log, Pace, by_depth


def said(**record: float) -> str:
    lines: list[str] = []
    Log(50, say=lines.append).step(10, dict(record))
    return lines[0]


def test_a_line_is_what_a_metric_definition_finds() -> None:
    line = said(epoch=1, loss=1.23456789, **by_depth([0.7, 0.6]), learning_rate=1e-4)
    assert line == (
        "peagle-train step=10/50 epoch=1 loss=1.23457 accuracy_1=0.7 accuracy_2=0.6 learning_rate=0.0001"
    )
    match = re.search(r"^peagle-train step=\d+/\d+ .*\bloss=([0-9.eE+-]+)", line)
    assert match is not None
    assert float(match[1]) == 1.23457


def test_a_depth_without_a_token_has_no_figure() -> None:
    assert by_depth([0.5, None, 0.25]) == {"accuracy_1": 0.5, "accuracy_3": 0.25}


def test_pace_is_of_the_last_interval_and_the_time_left_of_all() -> None:
    times = iter([0.0, 10.0, 30.0, 31.0])
    pace = Pace(20, 50, clock=lambda: next(times))
    assert pace.at(25, 1000) == {"tokens_per_second": 100.0, "seconds_left": 50}
    assert pace.at(30, 2000) == {"tokens_per_second": 50.0, "seconds_left": 60}
    assert pace.seconds == 31.0


def test_a_run_that_goes_on_keeps_what_was_said() -> None:
    lines: list[str] = []
    log = Log(4, {"steps": [{"step": 1, "loss": 2.0}], "validation": []}, say=lines.append)
    log.resumed(1)
    log.step(2, {"loss": 1.0})
    log.validation(2, {"loss": 1.5})
    log.checkpoint(2)
    assert [each["step"] for each in log.history["steps"]] == [1, 2]
    assert log.history["resumed_at"] == [1]
    assert lines == [
        "peagle-train resumed step=1",
        "peagle-train step=2/4 loss=1",
        "peagle-train validation step=2 loss=1.5",
        "peagle-train checkpoint step=2",
    ]
