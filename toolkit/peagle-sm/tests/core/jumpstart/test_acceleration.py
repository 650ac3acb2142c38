"""Each way in which an image with its environment runs without P-EAGLE."""

from __future__ import annotations

import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks.jumpstart import unaccelerated
from peagle_sm.core.jumpstart.resolve import resolve_config
from peagle_sm.core.words import Finding
from tests.core.jumpstart.making import BUCKETS, CONFIG, LMI, VLLM, document

IMAGES = load_catalog().images
ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
GOOD = {"SM_VLLM_SPECULATIVE_CONFIG": CONFIG}


def reasons(
    image: str, environment: dict[str, str], channels: frozenset[str] = frozenset({"eagle"})
) -> list[Finding]:
    return list(unaccelerated(IMAGES.describe(image), environment, channels, load_catalog()))


def on(name: str) -> list[str]:
    found = resolve_config(
        document(), "lmi-optimized", region="us-east-1", instance_types=[name], buckets=BUCKETS
    )
    one = found.instances[name]
    return [reason.check for reason in reasons(one.image, {**found.environment, **one.environment})]


def test_what_aws_deploys_by_default_runs_p_eagle() -> None:
    assert on("ml.g7e.2xlarge") == []


def test_on_an_older_gpu_the_same_config_runs_without_and_nobody_is_told() -> None:
    assert on("ml.g5.12xlarge") == ["lmi-image", "engine-version", "tensor-parallel"]


@pytest.mark.parametrize("name", ["ml.p5.48xlarge", "ml.g6.12xlarge"])
def test_where_two_variables_name_two_sizes_that_is_told(name: str) -> None:
    assert on(name) == ["tensor-parallel"]


@pytest.mark.parametrize(
    ("image", "environment", "code", "said"),
    [
        (LMI, GOOD, "lmi-image", "ignores SM_VLLM_SPECULATIVE_CONFIG"),
        (
            f"{ECR}/djl-inference:0.36.0-lmi24.0.0-cu129",
            {"OPTION_SPECULATIVE_DRAFT_MODEL": "/opt/ml/additional-model-data-sources/eagle"},
            "lmi-draft-model",
            "ignores OPTION_SPECULATIVE_DRAFT_MODEL: it needs OPTION_SPECULATIVE_CONFIG",
        ),
        (
            f"{ECR}/djl-inference:0.36.0-lmi20.0.0-cu129",
            {"OPTION_SPECULATIVE_CONFIG": CONFIG},
            "engine-version",
            "has vLLM 0.15.1 at most; P-EAGLE needs 0.16.0",
        ),
        (f"{ECR}/vllm:0.15.0-gpu-py312", GOOD, "engine-version", "has vLLM 0.15.0; P-EAGLE needs 0.16.0"),
        (f"{ECR}/vllm:0.21.0-gpu-py312-cu130", GOOD, "json-quotes", "strips the quotes"),
        (VLLM, {}, "no-speculation", "SM_VLLM_SPECULATIVE_CONFIG is not set"),
        (VLLM, {"SM_VLLM_SPECULATIVE_CONFIG": "{method:eagle3}"}, "no-speculation", "not a JSON object"),
        (
            VLLM,
            {"SM_VLLM_SPECULATIVE_CONFIG": '{"method": "eagle3", "model": "x"}'},
            "no-parallel-drafting",
            "does not set parallel_drafting: true",
        ),
        (
            VLLM,
            {"SM_VLLM_SPECULATIVE_CONFIG": CONFIG.replace("/eagle", "/draft")},
            "no-head",
            "channel 'draft', and the model's channels are: eagle",
        ),
    ],
)
def test_each_trap_is_told_with_its_source(
    image: str, environment: dict[str, str], code: str, said: str
) -> None:
    (found,) = reasons(image, environment)[:1]
    assert found.check == code
    assert said in found.message
    assert found.source


@pytest.mark.parametrize(
    ("image", "environment"),
    [
        (f"{ECR}/djl-inference:0.36.0-lmi24.0.0-cu129", {"OPTION_SPECULATIVE_CONFIG": CONFIG}),
        (f"{ECR}/vllm:0.21.0-gpu-py312-cu130", GOOD | {"PROCESS_AUTO_RECOVERY": "false"}),
        (
            f"{ECR}/vllm:0.24.0-gpu-py312-cu130",
            GOOD | {"TENSOR_PARALLEL_DEGREE": "1", "SM_VLLM_TENSOR_PARALLEL_SIZE": "1"},
        ),
        (f"{ECR}/vllm:server-sagemaker-cuda-v2.1", GOOD),
    ],
)
def test_and_where_it_runs_nothing_is_told(image: str, environment: dict[str, str]) -> None:
    assert reasons(image, environment) == []


def test_how_new_the_engine_of_an_lmi_image_can_be() -> None:
    def at_most(tag: str) -> tuple[int, ...] | None:
        return IMAGES.lmi_engine_at_most(f"{ECR}/djl-inference:{tag}")

    assert at_most("0.34.0-lmi16.0.0-cu128") == (0, 12, 0)
    assert at_most("0.36.0-lmi24.0.0-cu129") == (0, 19, 0)
    assert at_most("0.39.0-lmi30.0.0-cu130") is None
    assert at_most("0.36.0") is None
