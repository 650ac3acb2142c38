import traceback

import pytest

from peagle_sm.core import errors
from peagle_sm.core.errors import EXIT_CODES, PeagleError, ServiceFault, SpecError, StreamError


def _tree(kind: type[PeagleError]) -> list[type[PeagleError]]:
    # Other layers and the kinds of `StreamError` share their parent's exit code.
    children = [
        child
        for child in kind.__subclasses__()
        if child.__module__ == errors.__name__ and "exit_code" in vars(child)
    ]
    return [kind, *(below for child in children for below in _tree(child))]


def test_every_error_has_a_documented_exit_code() -> None:
    assert {kind.exit_code for kind in _tree(PeagleError)} | {0} == set(EXIT_CODES)
    assert len(EXIT_CODES) <= 12


def test_an_error_says_its_message_and_keeps_the_rest() -> None:
    error = PeagleError("it broke", next_step="mend it", details={"a": 1})
    assert (str(error), error.next_step, error.details) == ("it broke", "mend it", {"a": 1})


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (ServiceFault("m", operation="CreateModel", code="X", request_id="r"), ("CreateModel", "X", "r")),
        (ServiceFault("m"), ("", "", "")),
    ],
)
def test_a_service_fault_names_call_code_and_request(
    error: ServiceFault, facts: tuple[str, str, str]
) -> None:
    assert (error.operation, error.code, error.request_id) == facts


def test_a_stream_error_keeps_what_had_arrived() -> None:
    error = StreamError("cut", partial_text="def f(", request_id="r")
    assert (error.partial_text, error.request_id) == ("def f(", "r")


def test_the_remedy_stands_below_a_traceback_too() -> None:
    error = SpecError("wrong", next_step="do this")
    error.add_note("somebody else's")
    error.next_step = "do that"
    assert str(error) == "wrong"
    text = "".join(traceback.format_exception(error))
    assert text.endswith("SpecError: wrong\nsomebody else's\nnext: do that\n")
    error.next_step = None
    assert "next:" not in "".join(traceback.format_exception(error))
