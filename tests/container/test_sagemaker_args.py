"""The rules of the AWS vLLM image, one test each, and what must hold for any environment."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_args import build_args

PORT = ["--port", "8080"]

flags = st.text(string.ascii_uppercase + string.digits + "_", min_size=1, max_size=20)
plain = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
environments = st.dictionaries(flags.map("SM_VLLM_".__add__), plain, max_size=8)


def args(**environ: str) -> list[str]:
    return build_args(environ, model_dir_has_files=False)


def value(text: str) -> list[str]:
    """What follows the flag --x when its variable has this value, or [] with no flag at all."""
    result = args(SM_VLLM_X=text)[2:]
    assert result[:1] in ([], ["--x"])
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", ["--x", "8"]),
        ("two words", ["--x", "two words"]),
        ("true", ["--x"]),
        ("TRUE", ["--x"]),
        (" True ", ["--x"]),
        ("false", []),
        ("False", []),
        ("", ["--x"]),
        ("truest", ["--x", "truest"]),
        ('{"a": 1,  "b": [2]}', ["--x", '{"a": 1,  "b": [2]}']),
        ('{"a": 1} {"b": 2}', ["--x", '{"a":1}', '{"b":2}']),
        ('["a", 1, true, null, {"b": [2]}]', ["--x", "a", "1", "true", "", '{"b":[2]}']),
        ("[]", []),
        (" [ ] ", []),
        ("[not json]", ["--x", "[not json]"]),
        ("{% for m in messages %}", ["--x", "{% for m in messages %}"]),
        ("{{ m }}", ["--x", "{{ m }}"]),
        ("[1] {2}", ["--x", "[1] {2}"]),
    ],
)
def test_each_kind_of_value(text: str, expected: list[str]) -> None:
    assert value(text) == expected


def test_the_speculative_config_arrives_letter_for_letter() -> None:
    config = '{"model": "/opt/ml/additional-model-data-sources/eagle", "parallel_drafting": true}'
    assert args(SM_VLLM_SPECULATIVE_CONFIG=config) == [*PORT, "--speculative-config", config]


def test_only_the_exact_prefix_counts() -> None:
    assert args(SM_VLLMX="1", sm_vllm_a="1", OPTION_A="1", VLLM_B="1", X_SM_VLLM_C="1") == PORT


def test_flags_whose_value_is_an_array_keep_it_whole() -> None:
    assert args(SM_VLLM_ALLOWED_ORIGINS='["*"]') == [*PORT, "--allowed-origins", '["*"]']
    assert args(SM_VLLM_MIDDLEWARE="[]") == [*PORT, "--middleware", "[]"]


def test_a_port_of_ones_own_follows_and_so_wins() -> None:
    assert args(SM_VLLM_PORT="9000") == [*PORT, "--port", "9000"]


def test_an_empty_model_leaves_a_dangling_flag() -> None:
    assert build_args({"SM_VLLM_MODEL": ""}, True) == [*PORT, "--model", "/opt/ml/model", "--model"]


@pytest.mark.parametrize(
    ("environ", "has_files", "model"),
    [
        ({"SM_VLLM_MODEL": "org/a", "HF_MODEL_ID": "org/b"}, True, ["--model", "org/a"]),
        ({"HF_MODEL_ID": "org/b"}, True, ["--model", "/opt/ml/model"]),
        ({"HF_MODEL_ID": "org/b"}, False, ["--model", "org/b"]),
        ({}, False, []),
    ],
)
def test_where_the_model_comes_from(environ: dict[str, str], has_files: bool, model: list[str]) -> None:
    assert build_args(environ, has_files) == [*PORT, *model]


@given(environments)
def test_the_order_of_the_environment_does_not_matter(environ: dict[str, str]) -> None:
    backwards = dict(reversed(environ.items()))
    assert build_args(environ, False) == build_args(backwards, False)


@given(environments, st.dictionaries(flags.map("HF_".__add__), plain))
def test_nothing_else_in_the_environment_matters(environ: dict[str, str], others: dict[str, str]) -> None:
    others.pop("HF_MODEL_ID", None)
    assert build_args(environ | others, False) == build_args(environ, False)


@given(st.dictionaries(st.text(max_size=5), nested, max_size=3), st.sampled_from([None, 1, " "]))
def test_any_json_object_is_one_token_verbatim(config: dict[str, object], indent: int | str | None) -> None:
    text = json.dumps(config, indent=indent)
    assert value(text) == ["--x", text]


@given(st.lists(nested, min_size=1, max_size=5))
def test_an_array_gives_one_token_per_element_from_which_it_can_be_read_back(elements: list[object]) -> None:
    _, *tokens = value(json.dumps(elements))
    assert len(tokens) == len(elements)
    for token, element in zip(tokens, elements, strict=True):
        if isinstance(element, dict | list):
            assert json.loads(token) == element
        elif isinstance(element, str):
            assert token == element


@given(environments)
def test_every_flag_is_spelt_as_a_long_option(environ: dict[str, str]) -> None:
    for name, text in environ.items():
        flag = "--" + name.removeprefix("SM_VLLM_").lower().replace("_", "-")
        expected = text.strip().lower() != "false" and text.strip().replace(" ", "") != "[]"
        if expected:
            assert flag in build_args({name: text}, False)
