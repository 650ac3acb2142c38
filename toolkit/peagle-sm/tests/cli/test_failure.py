from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from peagle_sm.cli import failure
from peagle_sm.cli.app import ENTRIES
from peagle_sm.core.errors import BillableLeft, Declined, EndpointFailed, ServiceFault, SpecError
from tests.cli.running import run

UNKNOWN = f"""\
error: No such command 'plna'. Did you mean 'plan'? Commands: {", ".join(each.name for each in ENTRIES)}.
  next: peagle-sm --help
"""


def test_a_mistyped_command() -> None:
    result = run("plna")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", UNKNOWN)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_usage_error_as_json_wherever_the_format_stands(before: bool) -> None:
    words = ["--format", "json", "models", "x"] if before else ["models", "x", "--format", "json"]
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert json.loads(result.stderr) == {
        "error": {
            "type": "UsageError",
            "message": "Got unexpected extra argument (x)",
            "next_step": "peagle-sm models --help",
            "details": {},
            "exit_code": 2,
        }
    }


def test_json_is_honoured_even_when_the_line_cannot_be_parsed() -> None:
    result = run("status", "--nonsense", "--format=json")
    assert json.loads(result.stderr)["error"]["message"] == "No such option '--nonsense'."


def test_a_deliberate_error_says_what_was_found_what_is_allowed_and_what_to_do() -> None:
    error = SpecError(
        "speculation.mode is unknown",
        next_step="correct it in peagle.yaml",
        details={"found": "pe", "allowed": ["none", "eagle3", "p-eagle"]},
    )
    assert failure.render_text(failure.from_exception(error)) == (
        "error: speculation.mode is unknown\n"
        "  found: pe\n"
        "  allowed: none, eagle3, p-eagle\n"
        "  next: correct it in peagle.yaml"
    )


def test_what_an_error_carries_reaches_the_json() -> None:
    fault = ServiceFault(
        "refused", operation="CreateEndpoint", code="ResourceLimitExceeded", request_id="r-1"
    )
    details = json.loads(failure.render_json(failure.from_exception(fault)))["error"]["details"]
    assert details == {
        "operation": "CreateEndpoint",
        "code": "ResourceLimitExceeded",
        "request_id": "r-1",
    }


def test_an_engines_last_lines_are_shown_unless_the_message_has_them() -> None:
    tail = [f"line {number}" for number in range(20)]
    shown = failure.render_text(failure.from_exception(EndpointFailed("failed", details={"log_tail": tail})))
    assert shown.splitlines()[:3] == ["error: failed", "  last lines of the engine's log:", "    line 5"]
    assert shown.endswith("    line 19")
    endpoint_failed = EndpointFailed("failed: x", details={"log_tail": ["x"]})
    assert failure.render_text(failure.from_exception(endpoint_failed)) == "error: failed: x"


def test_what_may_cost_money_is_named() -> None:
    error = BillableLeft("still there", next_step="peagle-sm delete a", details={"resources": ["endpoint/a"]})
    described = failure.from_exception(error)
    assert described.exit_code == 8
    assert "  resources: endpoint/a\n  next: peagle-sm delete a" in failure.render_text(described)


def test_an_unforeseen_error_is_one_line_and_a_file(tmp_path: Path) -> None:
    try:
        raise ZeroDivisionError("by zero\nsecond line")
    except ZeroDivisionError as error:
        described = failure.from_exception(error, {"XDG_STATE_HOME": str(tmp_path)})
    text = failure.render_text(described)
    assert text.splitlines()[0] == "error: unexpected ZeroDivisionError: by zero"
    assert described.exit_code == 1
    assert "Traceback" not in text
    assert "ZeroDivisionError" in Path(described.details["traceback"]).read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_has_the_shells_code(error: BaseException) -> None:
    assert failure.from_exception(error).exit_code == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["init", "--mode", "medusa"], "'medusa' is not one of 'none', 'ngram'"),
        (["invoke", "a", "--temperature", "3"], "3.0 is not in the range 0<=x<=2"),
        (["wait", "a", "--timeout", "soon"], "'soon' is not a duration"),
        (["list", "--format", "xml"], "'xml' is not one of 'table', 'json', 'quiet'"),
        (["local", "clock", "advance", "soon"], "'soon' is not a duration"),
    ],
)
def test_a_bad_argument_is_exit_code_2_and_no_traceback(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_no_at_a_question_is_an_answer_and_not_an_error() -> None:
    from_exception = failure.from_exception(
        Declined("Nothing was deleted: it was not confirmed.", next_step="Run again.")
    )
    assert (from_exception.exit_code, failure.render_text(from_exception)) == (
        3,
        "Nothing was deleted: it was not confirmed.",
    )
