"""The cause of a failure comes first."""

from __future__ import annotations

import pytest

from peagle_sm.core.words import cause_first

NO_PING = (
    "The primary container for production variant AllTraffic did not pass the ping health check. Please "
    "check CloudWatch logs for this endpoint. It exited with status 1. Its last words:"
)
DUMP = (
    f"{NO_PING} …\n"
    '(EngineCore pid=41) ERROR 11-20 08:00:01 [core.py:702]   File "vllm/v1/engine/core.py", line 1\n'
    "(EngineCore pid=41) ERROR 11-20 08:00:01 [core.py:702] ValueError: K=11 exceeds the head's 8 tokens\n"
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)


def test_the_cause_comes_first_and_the_rest_is_cut_between_words() -> None:
    first, beginning, where = cause_first(DUMP, "whole: --verbose").splitlines()
    assert first == "ValueError: K=11 exceeds the head's 8 tokens"
    assert beginning == f"{NO_PING} …"
    assert where == "(whole: --verbose)"


def test_a_dump_on_one_line_is_cut_between_words() -> None:
    first, beginning, _ = cause_first(
        f"{NO_PING} {'word ' * 90}torch.OutOfMemoryError: no room", "x"
    ).splitlines()
    assert first == "torch.OutOfMemoryError: no room"
    assert len(beginning) <= 240
    assert beginning.endswith("word …")


@pytest.mark.parametrize("reason", ["No capacity for ml.g7e.2xlarge.", " OSError: disk full \n"])
def test_a_short_reason_stays_as_it_is(reason: str) -> None:
    assert cause_first(reason, "x") == reason.strip()


def test_without_an_exception_the_last_line_comes_first() -> None:
    assert cause_first("a\nb\nkilled by signal 9", "x") == "killed by signal 9\na\n(x)"
