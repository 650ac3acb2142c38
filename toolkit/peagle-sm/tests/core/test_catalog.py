import json

import pytest

from peagle_sm.core.catalog import Catalog, known_instance_types, load_catalog
from peagle_sm.core.errors import SpecError

CATALOG: Catalog = load_catalog()


def test_the_five_models_and_the_stand_in_are_there() -> None:
    assert set(CATALOG.models) == {
        "gpt-oss-120b",
        "gpt-oss-20b",
        "qwen3-coder-30b-a3b-instruct",
        "gemma-4-31b-it",
        "qwen3-8b",
        "tiny-code",
    }


def test_every_fact_has_a_source_and_a_date() -> None:
    for name, model in CATALOG.models.items():
        assert set(model.provenance) >= {"weights_gb", "attention", "default_num_speculative_tokens"}, name
        assert all(origin.source and origin.date for origin in model.provenance.values())
    entries = [
        *CATALOG.heads.values(),
        *CATALOG.jumpstart.values(),
        *CATALOG.instances.values(),
        *CATALOG.prices,
    ]
    assert all(entry.model_dump()["source"] and entry.model_dump()["date"] for entry in entries)


def test_the_catalogue_agrees_with_itself() -> None:
    for name, model in CATALOG.models.items():
        for mode, head in model.default_heads.items():
            assert CATALOG.heads[head].target == name
            assert CATALOG.heads[head].method == mode
        for mode, tokens in model.default_num_speculative_tokens.items():
            head_id = model.default_heads.get(mode)
            if head_id is not None:
                assert tokens <= (CATALOG.heads[head_id].trained_depth or tokens)
    assert {head.target for head in CATALOG.heads.values()} <= set(CATALOG.models)
    assert set(CATALOG.images.ami_for_cuda.values()) <= set(CATALOG.images.amis)


def test_instances_are_types_that_botocore_knows() -> None:
    known = known_instance_types()
    assert "ml.p6-b200.48xlarge" in known
    assert set(CATALOG.instances) <= known
    assert {price.instance for price in CATALOG.prices} <= known
    for model in CATALOG.models.values():
        assert set(model.default_instance_types) <= known


def test_an_unknown_model_is_told_with_the_closest_one() -> None:
    with pytest.raises(SpecError) as caught:
        CATALOG.model("gpt-oss-20")
    assert "found 'gpt-oss-20'" in str(caught.value)
    assert "qwen3-coder-30b-a3b-instruct" in str(caught.value)
    assert "Did you mean 'gpt-oss-20b'?" in str(caught.value)


def test_jumpstarts_draft_settings_are_ones_that_vllm_takes() -> None:
    config = json.loads(CATALOG.jumpstart["gpt-oss-20b"].speculative_config)
    assert (config["method"], config["parallel_drafting"], config["num_speculative_tokens"]) == (
        "eagle3",
        True,
        3,
    )


@pytest.mark.parametrize(
    ("tag", "version", "cuda", "loses_quotes"),
    [
        ("0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker", "0.18.0", "12.9", False),
        ("0.20.1-gpu-py312-cu130-ubuntu22.04-sagemaker", "0.20.1", "13.0", False),
        ("0.20.2-gpu-py312-cu130-ubuntu22.04-sagemaker", "0.20.2", "13.0", True),
        ("0.23.0-gpu-py312-cu130-ubuntu22.04-sagemaker", "0.23.0", "13.0", True),
        ("0.24.0-gpu-py312-cu130-ubuntu22.04-sagemaker", "0.24.0", "13.0", False),
        ("server-sagemaker-cuda-v1", "0.19.1", "12.9", False),
        ("server-sagemaker-cuda-v2.0", "unknown", "13.0", True),
        ("server-sagemaker-cuda-v2.3", "0.27.0", "13.0", False),
        ("server-sagemaker-cuda-v9", "unknown", None, False),
        ("0.32.0-cpu", "0.32.0", None, False),
        ("latest", "unknown", None, False),
    ],
)
def test_what_a_tag_says(tag: str, version: str, cuda: str | None, loses_quotes: bool) -> None:
    image = CATALOG.images.describe(f"763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:{tag}")
    assert (image.repository, image.version_text, image.cuda) == ("vllm", version, cuda)
    assert CATALOG.images.loses_quotes(image) is loses_quotes


def test_an_lmi_image_has_no_vllm_version_in_its_tag() -> None:
    image = CATALOG.images.describe("a.dkr.ecr.r.amazonaws.com/djl-inference:0.34.0-lmi16.0.0-cu128")
    assert image.is_lmi
    assert image.version is None


def test_the_default_image_is_a_tag_that_aws_publishes() -> None:
    assert CATALOG.images.default_tag() == "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
