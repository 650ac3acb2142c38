import traceback

from peagle_sm.core import errors
from peagle_sm.core.errors import EXIT_CODES, PeagleError, SpecError


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


def test_the_remedy_stands_below_a_traceback_too() -> None:
    error = SpecError("wrong", next_step="do this")
    error.add_note("somebody else's")
    error.next_step = "do that"
    assert str(error) == "wrong"
    text = "".join(traceback.format_exception(error))
    assert text.endswith("SpecError: wrong\nsomebody else's\nnext: do that\n")
    error.next_step = None
    assert "next:" not in "".join(traceback.format_exception(error))
