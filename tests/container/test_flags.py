"""With what the container does not start; the arguments that the gate adds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.startup import (
    FLAGS,
    VARIABLES,
    Limits,
    Settings,
    Speculation,
    gate_arguments,
    is_on,
    refusals,
    speculation,
)
from peagle_sm.core.checks.environment import FORBIDDEN, GATE_FORBIDS
from sagemaker_args import build_args

CONFIG = '{"model": "/head", "num_speculative_tokens": 7, "parallel_drafting": true}'
SPECULATING = ["--model", "/m", "--speculative-config", CONFIG]


def said(*args: str, **environ: str) -> list[str]:
    return list(refusals(args, environ))


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_each_forbidden_flag_is_refused_with_reason_and_source(flag: str) -> None:
    for spelling in (flag, f"{flag}=x", flag.replace("-", "_").replace("__", "--", 1)):
        (sentence,) = said("--port", "8080", spelling, "value")
        assert flag in sentence
        assert FLAGS[flag].why in sentence
        assert "https://" in sentence


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_each_forbidden_variable_is_refused_unless_it_is_off(name: str) -> None:
    (sentence,) = said(**{name: "1"})
    assert name in sentence
    assert said(**{name: "0"}) == said(**{name: "False"}) == said(**{name: ""}) == []


def test_a_beginning_that_argparse_would_complete_is_refused_too() -> None:
    assert said("--trust-remote")
    assert said("--enable-prompt")
    assert said("--api-k=1")


def test_flags_that_only_begin_alike_pass() -> None:
    fine = [
        "--reasoning-parser",
        "--tool-call-parser",
        "--trust",
        "--enable-log-deltas",
        "--api-server-count",
    ]
    assert [flag for flag in fine if said(flag)] == ["--trust"]  # it could be any of three
    assert said("--speculative-config", CONFIG, "--max-num-seqs", "8") == []


def test_what_the_toolkit_refuses_before_a_deployment_the_container_refuses_too() -> None:
    for name in FORBIDDEN:
        environ = {name: "true"}
        assert said(*build_args(environ, False), **environ), name


def test_what_the_container_refuses_the_toolkit_refuses_among_extra_arguments() -> None:
    ours = {name.removeprefix("SM_VLLM_").lower() for name in FORBIDDEN if name.startswith("SM_VLLM_")}
    dotted = "override_generation_config."  # no name of an extra argument has a dot
    theirs = {flag[2:].replace("-", "_") for flag in FLAGS}
    assert ours | GATE_FORBIDS.keys() | {dotted} == theirs
    assert not ours & GATE_FORBIDS.keys()


def test_a_flag_hidden_in_an_array_is_found() -> None:
    args = build_args({"SM_VLLM_STOP": '["a", "--trust-remote-code"]'}, False)
    assert any("--trust-remote-code" in sentence for sentence in said(*args))


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_argument_breaks_the_check(args: list[str]) -> None:
    assert all(sentence for sentence in refusals(args, {}))


def test_the_gate_stands_before_all_other_middleware() -> None:
    args = gate_arguments(["--middleware", "theirs.App"], Settings(), "0.33.0")
    assert args[-2:] == ["--middleware", "peagle_gate.asgi.Gate"]


def test_requests_report_their_acceptance_where_the_engine_can_and_something_drafts() -> None:
    flag = ["--per-request-spec-decode-metrics", "summary"]
    assert flag == gate_arguments(SPECULATING, Settings(), "0.29.0")[4:6]
    for args, version in (
        (SPECULATING, "0.28.1"),
        (SPECULATING, ""),
        (["--model", "/m"], "0.33.0"),
        ([*SPECULATING, flag[0], "detailed"], "0.33.0"),
    ):
        assert flag[1] not in gate_arguments(args, Settings(), version)


def test_a_time_for_draining_of_ones_own_stays() -> None:
    assert "--shutdown-timeout" not in gate_arguments(["--shutdown-timeout", "3"], Settings(), "")
    assert gate_arguments([], Settings(drain_s=9), "")[:2] == ["--shutdown-timeout", "9"]


@pytest.mark.parametrize(
    ("own", "passed"),
    [
        ([], {"max_new_tokens": 50}),
        (["--override-generation-config", "{}"], {"max_new_tokens": 50}),
        (["--override-generation-config", '{"top_k": 3}'], {"top_k": 3, "max_new_tokens": 50}),
        (['--override-generation-config={"max_new_tokens": 20}'], {"max_new_tokens": 20}),
        (["--override-generation-config", '{"max_new_tokens": 51}'], {"max_new_tokens": 50}),
        (["--override-generation-config", '{"max_new_tokens": null}'], {"max_new_tokens": 50}),
    ],
)
def test_an_answer_without_max_tokens_has_the_limit_too(own: list[str], passed: dict[str, int]) -> None:
    args = gate_arguments(own, Settings(limits=Limits(max_tokens=50)), "")
    assert json.loads(args[args.index("--override-generation-config") + 1]) == passed


@pytest.mark.parametrize(
    "flag", ["--override-generation-config.top_k", "--override_generation_config.top_k=3"]
)
def test_the_dotted_form_that_would_replace_the_limit_is_refused(flag: str) -> None:
    assert any("limit of output tokens" in sentence for sentence in said(flag))


@pytest.mark.parametrize("broken", ["{", "[]", "3"])
def test_a_generation_config_that_vllm_refuses_is_left_to_it(broken: str) -> None:
    args = gate_arguments(["--override-generation-config", broken], Settings(), "")
    assert "--override-generation-config" not in args


def test_what_the_engine_was_told_of_drafting() -> None:
    found = speculation(SPECULATING)
    assert found is not None
    assert (found.tokens, found.parallel, found.head) == (7, True, "/head")
    assert speculation([f"--speculative-config={CONFIG}"]) == found
    for other in ("{", "[]", "null", json.dumps({"num_speculative_tokens": 0}), "{}"):
        assert speculation(["--speculative-config", other]) is None
    assert speculation(["--speculative-config"]) is None


def test_a_table_of_k_is_read_as_vllm_reads_it() -> None:
    def of(table: object) -> Speculation:
        text = json.dumps({**json.loads(CONFIG), "num_speculative_tokens_per_batch_size": table})
        found = speculation(["--speculative-config", text])
        assert found is not None
        return found

    found = of([[5, 8, 0], [1, 4, 9]])
    assert found.table == ((1, 4, 7), (5, 8, 0)), "in order, and at most the engine's own K"
    assert (found.least, found.shows_second_tokens) == (0, True)
    assert not of([[1, 4, 7], [5, 8, 1]]).shows_second_tokens
    for none in (None, [], [[1, 4]], "x", [["a", 4, 7]]):
        assert (of(none).table, of(none).least) == ((), 7)


def test_the_engine_may_be_told_of_drafting_by_three_flags() -> None:
    found = speculation(["--spec-method", "eagle3", "--spec-model=/head", "--spec-tokens", "3"])
    assert found is not None
    assert (found.tokens, found.parallel, found.head) == (3, False, "/head")
    assert speculation(["--spec-tokens", "none"]) is None


def test_the_gate_stands_unless_it_is_turned_off() -> None:
    assert is_on({})
    assert is_on({"PEAGLE_GATE": "on"})
    assert not is_on({"PEAGLE_GATE": " OFF "})


@pytest.mark.parametrize("value", ["1", "true", "", "2"])
def test_p_eagle_on_the_v2_model_runner_is_refused(value: str) -> None:
    (sentence,) = refusals(["--speculative-config", CONFIG], {"VLLM_USE_V2_MODEL_RUNNER": value})
    assert sentence.startswith(f"VLLM_USE_V2_MODEL_RUNNER={value} is forbidden with P-EAGLE")
    assert "set it to 0" in sentence


def test_other_modes_may_use_the_v2_model_runner() -> None:
    sequential = CONFIG.replace("true", "false")
    assert list(refusals(["--speculative-config", CONFIG], {})) == []
    assert list(refusals(["--speculative-config", CONFIG], {"VLLM_USE_V2_MODEL_RUNNER": "0"})) == []
    assert list(refusals(["--speculative-config", sequential], {"VLLM_USE_V2_MODEL_RUNNER": "1"})) == []
    assert list(refusals([], {"VLLM_USE_V2_MODEL_RUNNER": "1"})) == []
