"""StopTrainingJob: a refusal because the job ends is told apart from the others by its text."""

from __future__ import annotations

import pytest

from peagle_learn.aws.jobs import is_ending
from peagle_sm.core.errors import ServiceFault


@pytest.mark.parametrize(
    ("code", "message", "ends"),
    [
        (
            "ValidationException",
            "The request was rejected because the training job is in status Stopping",
            True,
        ),
        (
            "ValidationException",
            "The request was rejected because the training job is in status Failed.",
            True,
        ),
        ("ValidationException", "The request was rejected because the job is in status InProgress", False),
        ("ValidationException", "1 validation error detected: the name's status is Stopping", False),
        ("ThrottlingException", "it is in status Stopping", False),
    ],
)
def test_a_stop_is_refused_as_the_job_ends(code: str, message: str, ends: bool) -> None:
    assert is_ending(ServiceFault(message, operation="StopTrainingJob", code=code)) is ends
