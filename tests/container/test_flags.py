"""With what the container does not start; the arguments that the gate adds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.forbidden import MODEL_FOLDER, Forbidden
from peagle_gate.startup import (
    FORBIDDEN,
    Limits,
    Settings,
    Speculation,
    gate_arguments,
    is_on,
    refusals,
    speculation,
)
from sagemaker_args import build_args

CONFIG = '{"model": "/head", "num_speculative_tokens": 7, "parallel_drafting": true}'
SPECULATING = ["--model", "/m", "--speculative-config", CONFIG]


def said(*args: str, **environ: str) -> list[str]:
    return list(refusals(args, environ))


def bad_value(entry: Forbidden) -> str:
    """A value that the entry forbids."""
    value = f"{MODEL_FOLDER}module.Class"
    return json.dumps({"extra": [{key: value} for key in entry.keys]}) if entry.keys else value


@pytest.mark.parametrize("name", sorted(FORBIDDEN.arguments))
def test_each_forbidden_flag_is_refused_with_reason_and_source(name: str) -> None:
    entry, flag = FORBIDDEN.arguments[name], "--" + name.replace("_", "-")
    value = bad_value(entry)
    for spelling in (flag, flag.replace("-", "_").replace("__", "--", 1)):
        for args in ([spelling, value], [f"{spelling}={value}"]):
            (sentence,) = said("--port", "8080", *args)
            assert flag in sentence
            assert entry.why in sentence
            assert "https://" in sentence


@pytest.mark.parametrize("name", sorted(FORBIDDEN.variables))
def test_each_forbidden_variable_is_refused_unless_it_is_off(name: str) -> None:
    (sentence,) = said(**{name: bad_value(FORBIDDEN.variables[name])})
    assert name in sentence
    assert said(**{name: "0"}) == said(**{name: "False"}) == said(**{name: ""}) == []


def test_only_some_values_of_an_argument_are_forbidden() -> None:
    fine = [
        *("--distributed-executor-backend", "mp"),
        *("--compilation-config", '{"backend": "inductor", "inductor_passes": {}}'),
        *("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_connector_module_path": null}'),
        *("-cc.backend", "eager"),
        *("--model", "/opt/ml/model"),
    ]
    assert said(*fine, PYTHONPATH="/opt/peagle", LD_LIBRARY_PATH="/usr/local/cuda/compat") == []


@pytest.mark.parametrize(
    "args",
    [
        ["--compilation-config.backend", "evil.Backend"],
        ["-cc.backend=evil.Backend"],
        ["-cc", '{"inductor_passes": {"a": "evil.function"}}'],
        ["--compilation_config.inductor_passes.mine", "evil.function"],
        ["--kv-transfer-config.kv_connector_module_path", "evil"],
        ["--kv-transfer-config.kv_connector_extra_config.spec_module_path", "evil"],
        ["--kv-transfer-config.kv_connector_extra_config", '{"tiers": [{"module_path": "evil"}]}'],
        ["--kv-transfer-conf", '{"kv_connector_module_path": "evil"}'],
        ["--kv-transfer-config", '{"kv_connector_module_path": "evil"'],  # not JSON, so read as text
        ["--distributed-executor-back", "evil.Executor"],
        ["--middlewar=evil.App"],
    ],
)
def test_other_spellings_of_python_by_name_are_refused(args: list[str]) -> None:
    assert said(*args), args


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


def json_values() -> st.SearchStrategy[object]:
    keys = st.sampled_from(
        sorted({key for entry in FORBIDDEN.arguments.values() for key in entry.keys} | {"a", "b"})
    )
    texts = st.sampled_from(["", "inductor", "evil", "evil.Class", "/opt/ml/model"])
    return st.recursive(
        st.none() | st.integers(0, 2) | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
        max_leaves=5,
    )


@given(st.sampled_from(sorted(FORBIDDEN.arguments)), json_values() | st.text(max_size=8))
def test_an_argument_and_its_variable_are_judged_alike(name: str, value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    variable = f"SM_VLLM_{name.upper()}"
    entry = FORBIDDEN.setting(variable, text)
    if text.strip().lower() in ("", "0", "true", "false") or text.startswith(("[", "-")):
        return  # a bare flag, or several tokens
    sentences = said(*build_args({variable: text}, False))
    assert bool(entry) == bool(sentences), (entry, sentences)


def test_a_flag_hidden_in_an_array_is_found() -> None:
    args = build_args({"SM_VLLM_STOP": '["a", "--trust-remote-code"]'}, False)
    assert any("--trust-remote-code" in sentence for sentence in said(*args))


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_argument_breaks_the_check(args: list[str]) -> None:
    assert all(sentence for sentence in refusals(args, {}))


def test_the_gate_is_the_only_middleware() -> None:
    assert gate_arguments([], Settings(), "0.33.0")[-2:] == ["--middleware", "peagle_gate.asgi.Gate"]


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
    assert gate_arguments([], Settings(drain_s=9), "0.18.0")[:2] == ["--shutdown-timeout", "9"]


def test_an_engine_without_draining_does_not_get_its_flag() -> None:
    assert "--shutdown-timeout" not in gate_arguments([], Settings(), "0.17.1")


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
    result = speculation(SPECULATING)
    assert result is not None
    assert (result.tokens, result.parallel, result.head) == (7, True, "/head")
    assert speculation([f"--speculative-config={CONFIG}"]) == result
    for other in ("{", "[]", "null", json.dumps({"num_speculative_tokens": 0}), "{}"):
        assert speculation(["--speculative-config", other]) is None
    assert speculation(["--speculative-config"]) is None


def test_a_table_of_k_is_read_as_vllm_reads_it() -> None:
    def of(table: object) -> Speculation:
        text = json.dumps({**json.loads(CONFIG), "num_speculative_tokens_per_batch_size": table})
        result = speculation(["--speculative-config", text])
        assert result is not None
        return result

    result = of([[5, 8, 0], [1, 4, 9]])
    assert result.table == ((1, 4, 7), (5, 8, 0)), "in order, and at most the engine's own K"
    for none in (None, [], [[1, 4]], "x", [["a", 4, 7]]):
        assert of(none).table == ()


def test_the_engine_may_be_told_of_drafting_by_three_flags() -> None:
    result = speculation(["--spec-method", "eagle3", "--spec-model=/head", "--spec-tokens", "3"])
    assert result is not None
    assert (result.tokens, result.parallel, result.head) == (3, False, "/head")
    assert speculation(["--spec-tokens", "none"]) is None


def test_drafts_from_the_text_may_be_missing() -> None:
    text = json.dumps({"method": "ngram", "num_speculative_tokens": 5})
    by_config = speculation(["--speculative-config", text])
    by_flags = speculation(["--spec-method", "suffix", "--spec-tokens", "5"])
    with_head = speculation(SPECULATING)
    assert [each.from_text for each in (by_config, by_flags, with_head) if each] == [True, True, False]


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
