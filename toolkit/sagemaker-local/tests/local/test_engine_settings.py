"""From a container's environment to a process's: what moves, what is overridden, and that it is told."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.engine.model import ModelFacts, read_model
from sagemaker_local.engine.settings import (
    LocalSettings,
    engine_of,
    local_settings,
    parse_image,
    refusal,
    rewrite_paths,
)

ENGINES = ("0.32.0", "0.30.0")
ROOT = "/tmp/an endpoint/opt/ml"
SPECULATION = {
    "model": "/opt/ml/additional-model-data-sources/eagle",
    "method": "eagle3",
    "num_speculative_tokens": 3,
    "parallel_drafting": True,
}


def settings(model_context: int | None = 8192, dtype: str = "float32", **environment: str) -> LocalSettings:
    model = ModelFacts(model_context, dtype)
    return local_settings(environment, ml_root=Path(ROOT), port=20001, model=model)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/opt/ml/model", f"{ROOT}/model"),
        ("/opt/ml", ROOT),
        ("a=/opt/ml/x:/opt/ml/y", f"a={ROOT}/x:{ROOT}/y"),
        ("file:///opt/ml/model", f"file://{ROOT}/model"),
        ("/opt/mlflow", "/opt/mlflow"),
        ("/data/opt/ml/x", "/data/opt/ml/x"),
        ("/opt/ml-old/x", "/opt/ml-old/x"),
        ('["/opt/ml/a", 1]', f'["{ROOT}/a",1]'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_paths_are_rewritten_where_they_are_paths(value: str, expected: str) -> None:
    assert rewrite_paths(value, ROOT) == expected


@given(st.text(string.printable + 'é"\\', max_size=30))
def test_json_stays_json_whatever_the_directory_is_called(directory: str) -> None:
    rewritten = json.loads(rewrite_paths(json.dumps({"a": [SPECULATION]}), f"/{directory}"))
    assert rewritten == {"a": [SPECULATION | {"model": f"/{directory}/additional-model-data-sources/eagle"}]}


def test_every_value_is_rewritten() -> None:
    local = settings(
        SM_VLLM_SPECULATIVE_CONFIG=json.dumps(SPECULATION),
        HF_MODEL_ID="/opt/ml/model",
        OTHER="/opt/ml/model/code",
    ).environment
    assert (
        json.loads(local["SM_VLLM_SPECULATIVE_CONFIG"])["model"]
        == f"{ROOT}/additional-model-data-sources/eagle"
    )
    assert local["HF_MODEL_ID"] == f"{ROOT}/model"
    assert local["OTHER"] == f"{ROOT}/model/code"


def test_local_settings_replace_what_a_gpu_would_want_and_each_is_told() -> None:
    local = settings(
        SM_VLLM_DTYPE="bfloat16",
        SM_VLLM_TENSOR_PARALLEL_SIZE="8",
        SM_VLLM_DATA_PARALLEL_SIZE="2",
        SM_VLLM_QUANTIZATION="mxfp4",
        SM_VLLM_KV_CACHE_DTYPE="fp8",
        SM_VLLM_PORT="8080",
        SM_VLLM_MAX_NUM_SEQS="64",
    )
    environment = local.environment
    assert environment["SM_VLLM_DTYPE"] == "float32"
    assert environment["SM_VLLM_TENSOR_PARALLEL_SIZE"] == "1"
    assert environment["SM_VLLM_DATA_PARALLEL_SIZE"] == "1"
    assert environment["SM_VLLM_HOST"] == "127.0.0.1"
    assert environment["SM_VLLM_PORT"] == "20001"
    assert environment["SM_VLLM_ENFORCE_EAGER"] == "true"
    assert environment["SM_VLLM_MAX_NUM_SEQS"] == "64"
    assert "SM_VLLM_QUANTIZATION" not in environment
    assert "SM_VLLM_KV_CACHE_DTYPE" not in environment
    for each in [
        "dtype: float32 instead of bfloat16",
        "tensor_parallel_size: 1 instead of 8",
        "data_parallel_size: 1 instead of 2",
        "port: 20001 instead of 8080",
        "quantization: 'mxfp4' is ignored",
        "kv_cache_dtype: 'fp8' is ignored",
        "host: 127.0.0.1",
        "enforce_eager: true",
    ]:
        assert [sentence for sentence in local.overrides if sentence.startswith(each)], each


def test_what_is_already_so_is_not_called_an_override() -> None:
    local = settings(SM_VLLM_DTYPE="float32", SM_VLLM_TENSOR_PARALLEL_SIZE="1")
    assert not [
        s for s in local.overrides if s.startswith(("dtype", "tensor_parallel_size", "data_parallel"))
    ]
    assert "SM_VLLM_DATA_PARALLEL_SIZE" not in local.environment


def test_answers_name_the_model_as_the_container_would() -> None:
    name = "SM_VLLM_SERVED_MODEL_NAME"
    assert settings().environment[name] == "/opt/ml/model"
    assert settings(SM_VLLM_MODEL="/opt/ml/model/target").environment[name] == "/opt/ml/model/target"
    assert settings(SM_VLLM_SERVED_MODEL_NAME="mine").environment[name] == "mine"


def test_compiling_and_another_type_can_be_asked_for() -> None:
    environment = settings(PEAGLE_SM_LOCAL_COMPILE="1", PEAGLE_SM_LOCAL_DTYPE="bfloat16").environment
    assert "SM_VLLM_ENFORCE_EAGER" not in environment
    assert environment["SM_VLLM_DTYPE"] == "bfloat16"


def test_a_context_longer_than_the_stand_ins_is_shortened() -> None:
    local = settings(SM_VLLM_MAX_MODEL_LEN="131072")
    assert local.environment["SM_VLLM_MAX_MODEL_LEN"] == "8192"
    assert "max_model_len: 8192 instead of 131072, the model's context length" in local.overrides
    assert settings(SM_VLLM_MAX_MODEL_LEN="4096").environment["SM_VLLM_MAX_MODEL_LEN"] == "4096"
    assert settings(None, SM_VLLM_MAX_MODEL_LEN="131072").environment["SM_VLLM_MAX_MODEL_LEN"] == "131072"


def test_a_speculative_config_for_several_devices_is_mended() -> None:
    request = {"method": "eagle3", "draft_tensor_parallel_size": 8, "quantization": "fp8"}
    local = settings(SM_VLLM_SPECULATIVE_CONFIG=json.dumps(request))
    config = json.loads(local.environment["SM_VLLM_SPECULATIVE_CONFIG"])
    assert config == {"method": "eagle3", "draft_tensor_parallel_size": 1}
    assert [s for s in local.overrides if s.startswith("draft_tensor_parallel_size: 1 instead of 8")]
    assert [s for s in local.overrides if s.startswith("draft quantization: 'fp8' is ignored")]


def test_a_broken_speculative_config_is_left_for_the_engine_to_refuse() -> None:
    broken = "{method:eagle3}"
    assert settings(SM_VLLM_SPECULATIVE_CONFIG=broken).environment["SM_VLLM_SPECULATIVE_CONFIG"] == broken


@pytest.mark.parametrize(
    ("uri", "repository", "version"),
    [
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
            "vllm",
            "0.30.0",
        ),
        (
            "public.ecr.aws/deep-learning-containers/vllm:server-sagemaker-cuda-v2.1",
            "vllm",
            "server-sagemaker-cuda-v2.1",
        ),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu@sha256:00", "vllm", "0.32.0"),
        ("localhost:5000/vllm", "vllm", "latest"),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.36.0-lmi24",
            "djl-inference",
            "0.36.0",
        ),
    ],
)
def test_images(uri: str, repository: str, version: str) -> None:
    image = parse_image(uri)
    assert (image.repository, image.version) == (repository, version)
    assert (refusal(uri, ENGINES) is None) == (repository == "vllm")


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("0.32.0-cpu", "0.32.0"),
        ("0.30.0-cpu", "0.30.0"),
        ("0.30.0-cpu@sha256:00", "0.30.0"),
        ("0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker", "0.32.0"),
        ("latest", "0.32.0"),
        ("0.30.0", "0.32.0"),
    ],
)
def test_a_cpu_tag_chooses_the_engine_and_any_other_gets_the_default(tag: str, version: str) -> None:
    assert engine_of(f"1.dkr.ecr.us-east-1.amazonaws.com/vllm:{tag}", ENGINES) == version


def test_a_cpu_tag_without_an_engine_is_refused_with_the_engines_that_there_are() -> None:
    assert refusal("r/vllm:0.29.0-cpu", ENGINES) == (
        "the image's tag is '0.29.0-cpu'; the local SageMaker has these engines: 0.32.0-cpu, 0.30.0-cpu"
    )
    assert refusal("r/vllm:0.30.0-cpu", ENGINES) is None


def test_the_gate_stands_before_images_of_ones_own_and_not_before_awss() -> None:
    own = settings()
    assert own.environment["PEAGLE_GATE_CANARY_PROMPTS"] == "8"
    assert any(told.startswith("gate_canary_prompts: 8, because") for told in own.overrides)
    request = settings(PEAGLE_GATE_CANARY_PROMPTS="20")
    assert request.environment["PEAGLE_GATE_CANARY_PROMPTS"] == "20"
    theirs = local_settings(
        {}, ml_root=Path(ROOT), port=20001, model=ModelFacts(None, "float32"), aws_image=True
    )
    assert theirs.environment["PEAGLE_GATE"] == "off"


AMD = "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 sse2\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16\n"
OLD = "processor\t: 0\nflags\t\t: fpu avx2\nbugs\t: bf16\n"


@pytest.mark.parametrize(
    ("stored", "processor", "computed"),
    [
        ("bfloat16", AMD, "bfloat16"),
        ("bfloat16", ARM, "float32"),
        ("bfloat16", OLD, "float32"),
        ("float32", AMD, "float32"),
        ("float16", AMD, "float32"),
        (None, AMD, "float32"),
    ],
)
def test_a_target_is_computed_as_it_is_stored_where_the_processor_can(
    tmp_path: Path, stored: str | None, processor: str, computed: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": stored, "max_position_embeddings": 512}))
    (tmp_path / "cpuinfo").write_text(processor)
    assert read_model(tmp_path, tmp_path / "cpuinfo") == ModelFacts(512, computed)


@pytest.mark.parametrize("config", [None, "{", "[]", "{}"])
def test_a_config_that_tells_nothing_means_float32(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert read_model(tmp_path, tmp_path / "no-cpuinfo") == ModelFacts(None, "float32")


def test_what_it_is_computed_in_is_told() -> None:
    local = settings(dtype="bfloat16")
    assert local.environment["SM_VLLM_DTYPE"] == "bfloat16"
    assert [told for told in local.overrides if told.startswith("dtype: bfloat16, because")]


@pytest.mark.parametrize(
    ("given", "threads", "told"),
    [({}, "1", False), ({"PEAGLE_SM_LOCAL_THREADS": "2"}, "2", False)]
    + [({"PEAGLE_SM_LOCAL_THREADS": wrong}, "1", True) for wrong in ("0", "all", "")],
)
def test_threads_are_one_or_what_is_asked_for_and_never_spin(
    given: dict[str, str], threads: str, told: bool
) -> None:
    environment = {"OMP_NUM_THREADS": "64", "OMP_WAIT_POLICY": "ACTIVE", **given}
    model = ModelFacts(8192, "float32")
    local = local_settings(environment, ml_root=Path(ROOT), port=20001, model=model)
    assert local.environment["OMP_NUM_THREADS"] == local.environment["NUMBA_NUM_THREADS"] == threads
    assert local.environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert any(sentence.startswith("threads: 1") for sentence in local.overrides) is told
