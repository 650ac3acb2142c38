"""What JumpStart would deploy: the facts of AWS's own spec, exactly, and every rule of resolving."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.core.jumpstart.documents import CatalogueDamaged, parse_document
from peagle_sm.core.jumpstart.resolve import (
    Head,
    Resolved,
    buckets_for,
    choose_config,
    resolve_config,
)
from peagle_sm.core.spec.lock import LockedInstance
from sagemaker_local.contents.jumpstart_bucket import known_spec
from tests.core.jumpstart.making import BUCKETS, CONFIG, HEAD, LMI, TARGET, VLLM, best, document
from tests.core.strategies import json_values

ENTRY = load_catalog().jumpstart["gpt-oss-20b"]
SPEC = known_spec()
FOUR_GPUS = {
    "MAX_BATCH_SIZE": "16",
    "MAX_CONCURRENT_REQUESTS": "32",
    "OPTION_DTYPE": "bf16",
    "OPTION_ENABLE_CHUNCKED_PREFILL": "True",
    "OPTION_GPU_MEMORY_UTILIZATION": "0.88",
    "OPTION_MAX_MODEL_LEN": "131072",
    "OPTION_MAX_NUM_BATCHED_TOKENS": "131072",
    "TENSOR_PARALLEL_DEGREE": "4",
}


def resolved(
    *types: str, region: str = "us-east-1", config: str = "lmi-optimized", **change: Any
) -> Resolved:
    created = document(**change)
    return resolve_config(
        created, config, region=region, instance_types=types, buckets=buckets_for(region, {})
    )


def test_the_spec_of_gpt_oss_20b_resolves_to_what_aws_deploys() -> None:
    created = document()
    assert (created.model.model_id, created.model.version) == ("openai-reasoning-gpt-oss-20b", "3.38.0")
    assert created.ranking == ("lmi-optimized", "lmi")
    assert choose_config(created) == "lmi-optimized"
    found = resolve_config(created, "lmi-optimized", region="us-east-1", instance_types=(), buckets=BUCKETS)
    assert found == Resolved(
        config="lmi-optimized",
        instances={
            "ml.g7e.2xlarge": LockedInstance(
                image=VLLM, target_uri=TARGET, environment={"TENSOR_PARALLEL_DEGREE": "1"}
            )
        },
        environment={
            "HF_MODEL_ID": "/opt/ml/model",
            "MODEL_CACHE_ROOT": "/opt/ml/model",
            "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
            "SAGEMAKER_ENV": "1",
            "SAGEMAKER_MODEL_SERVER_TIMEOUT": "3600",
            "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
            "SAGEMAKER_PROGRAM": "inference.py",
            "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
            "SM_VLLM_MAX_MODEL_LEN": "8192",
            "SM_VLLM_SPECULATIVE_CONFIG": CONFIG,
            "SM_VLLM_TENSOR_PARALLEL_SIZE": "1",
            "TIKTOKEN_ENCODINGS_BASE": "/opt/ml/model",
        },
        heads=(Head("eagle", HEAD, "v1.0.0", gated=False),),
        gated=False,
        eula_uris=(),
        network_isolation=True,
        download_timeout_s=3600,
        startup_timeout_s=3600,
        default_instance_type="ml.g7e.2xlarge",
        supported_instance_types=ENTRY.instance_types,
    )


@pytest.mark.parametrize("name", ENTRY.instance_types)
def test_every_instance_type_resolves_to_what_the_catalogue_holds(name: str) -> None:
    one = resolved(name).instances[name]
    registry = load_catalog().regions["us-east-1"].registry("us-east-1")
    assert one.image == ENTRY.image_for(name).format(registry=registry)
    assert one.target_uri == ENTRY.target("us-east-1")
    by_name = {**resolved(name).environment, **one.environment}
    assert by_name.pop("SM_VLLM_SPECULATIVE_CONFIG") == ENTRY.speculative_config
    assert by_name == ENTRY.environment_for(name)


def test_an_older_family_keeps_the_lmi_image() -> None:
    assert resolved("ml.g5.12xlarge").instances["ml.g5.12xlarge"] == LockedInstance(
        image=LMI, target_uri=TARGET, environment=FOUR_GPUS
    )
    assert resolved("ml.g6.12xlarge").instances["ml.g6.12xlarge"].image == VLLM


def test_the_other_config_has_its_own_image_times_and_no_head() -> None:
    result = resolved("ml.p5.48xlarge", config="lmi")
    assert result.instances["ml.p5.48xlarge"] == LockedInstance(
        image=LMI, target_uri=TARGET, environment={"TENSOR_PARALLEL_DEGREE": "8"}
    )
    assert (result.heads, result.download_timeout_s, result.startup_timeout_s) == ((), 1200, 1200)
    assert "SM_VLLM_SPECULATIVE_CONFIG" not in result.environment


def test_each_region_has_its_own_image_and_bucket() -> None:
    result = resolved(region="cn-north-1").instances["ml.g7e.2xlarge"]
    assert result.image.startswith("727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/vllm:0.18.0")
    assert result.target_uri.startswith("s3://jumpstart-cache-prod-cn-north-1/")


def test_the_environment_redirects_buckets_as_the_sdk_s_does() -> None:
    environ = {
        "AWS_JUMPSTART_CONTENT_BUCKET_OVERRIDE": "mirror",
    }
    config = resolve_config(
        document(),
        "lmi-optimized",
        region="us-east-1",
        instance_types=(),
        buckets=buckets_for("us-east-1", environ),
    )
    assert config.instances["ml.g7e.2xlarge"].target_uri.startswith("s3://mirror/openai-reasoning/")
    assert config.heads[0].uri.startswith("s3://mirror/lmi-eagle-heads/")


def test_a_gated_model_lies_in_the_gated_bucket_and_names_its_terms() -> None:
    def gate(spec: dict[str, Any]) -> None:
        spec["gated_bucket"] = True
        best(spec)["hosting_eula_key"] = "terms/llama.txt"

    result = resolved(change=gate)
    assert result.gated
    assert result.eula_uris == ("s3://jumpstart-cache-prod-us-east-1/terms/llama.txt",)
    assert result.instances["ml.g7e.2xlarge"].target_uri.startswith(
        "s3://jumpstart-private-cache-prod-us-east-1/"
    )
    assert result.heads[0].uri == HEAD, "the head is not gated, and stays where it was"


def test_a_licence_on_the_model_is_not_lost_where_a_config_does_not_repeat_it() -> None:
    assert resolved(change=lambda spec: spec.update(hosting_eula_key="terms.txt")).gated


@pytest.mark.parametrize(
    ("provider", "bucket"),
    [
        ({"name": "JumpStart", "classification": "gated"}, "jumpstart-private-cache-prod-us-east-1"),
        ({"name": "JumpStart", "classification": "non-gated"}, "jumpstart-cache-prod-us-east-1"),
        ({"name": "Neo"}, "sagemaker-sd-models-prod-us-east-1"),
        (None, "sagemaker-sd-models-prod-us-east-1"),
    ],
)
def test_a_head_lies_in_its_provider_s_bucket(provider: dict[str, str] | None, bucket: str) -> None:
    def put(spec: dict[str, Any]) -> None:
        best(spec)["hosting_additional_data_sources"]["speculative_decoding"][0]["provider"] = provider

    assert resolved(change=put).heads[0].uri.startswith(f"s3://{bucket}/lmi-eagle-heads/")


def test_a_head_by_its_whole_address_needs_no_bucket_of_the_region() -> None:
    def elsewhere(spec: dict[str, Any]) -> None:
        channel = best(spec)["hosting_additional_data_sources"]["speculative_decoding"][0]
        channel["s3_data_source"]["s3_uri"] = "s3://mine/head/"

    assert resolved(region="af-south-1", change=elsewhere).heads[0].uri == "s3://mine/head/"


def test_what_an_instance_type_says_goes_before_what_its_family_says() -> None:
    def vary(spec: dict[str, Any]) -> None:
        variants = best(spec)["hosting_instance_type_variants"]["variants"]
        variants["g7e"]["properties"] = {
            "environment_variables": {"A": "family", "B": 1},
            "prepacked_artifact_key": "family/",
        }
        variants["ml.g7e.2xlarge"]["properties"]["environment_variables"] = {"A": "type"}
        variants["ml.g7e.4xlarge"] = {
            "regional_properties": {"image_uri": "$alias_ecr_uri_1"},
            "properties": {"prepacked_artifact_key": "type/"},
        }

    instances = resolved("ml.g7e.2xlarge", "ml.g7e.4xlarge", change=vary).instances
    assert instances["ml.g7e.2xlarge"].environment == {"A": "type", "B": "1"}
    assert instances["ml.g7e.2xlarge"].target_uri.endswith("/family/")
    assert instances["ml.g7e.4xlarge"].image == LMI
    assert instances["ml.g7e.4xlarge"].target_uri.endswith("/type/")


def test_without_a_prepacked_artifact_the_plain_one_is_taken() -> None:
    def unpack(spec: dict[str, Any]) -> None:
        for part in (spec, best(spec)):
            part["hosting_prepacked_artifact_key"] = None

    assert (
        resolved(change=unpack)
        .instances["ml.g7e.2xlarge"]
        .target_uri.endswith("/artifacts/inference/v1.0.0/")
    )


def test_the_first_config_in_the_ranking_with_a_head_is_chosen() -> None:
    def rank(spec: dict[str, Any]) -> None:
        spec["inference_config_rankings"]["overall"]["rankings"] = ["lmi", "lmi-optimized"]

    assert choose_config(document(rank)) == "lmi-optimized"
    assert choose_config(document(rank), "lmi") == "lmi"

    def without_head(spec: dict[str, Any]) -> None:
        rank(spec)
        best(spec).pop("hosting_additional_data_sources")

    assert choose_config(document(without_head)) == "lmi"
    with pytest.raises(NotFound, match=r"--config: found 'lmi-optimised'.* Did you mean 'lmi-optimized'"):
        choose_config(document(), "lmi-optimised")


def test_a_spec_without_configs_has_one() -> None:
    plain = best(known_spec()) | {"model_id": "m", "version": "1.0.0"}
    created = parse_document(json.dumps(plain).encode())
    assert (created.ranking, choose_config(created)) == (("default",), "default")


@pytest.mark.parametrize(
    ("types", "region", "said"),
    [
        (("ml.m5.large",), "us-east-1", "has no image for ml.m5.large; it has images for g4dn, g5"),
        (
            ("ml.g7e.2xlarge",),
            "xx-nowhere-1",
            r"has no image \$gpu_ecr_uri_2 for ml.g7e.2xlarge in xx-nowhere-1",
        ),
        (("nonsense",), "us-east-1", "has no image for nonsense"),
    ],
)
def test_an_instance_or_region_without_an_image_is_told(
    types: tuple[str, ...], region: str, said: str
) -> None:
    with pytest.raises(NotFound, match=said) as caught:
        resolved(*types, region=region)
    assert caught.value.next_step


def drop(path: str, value: Any = None) -> Any:
    """A change that puts a value at a path of the best component, or takes it away."""

    def change(spec: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place = best(spec)
        for parent in parents:
            place = place[parent]
        place[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "inference_environment_variables",
            {"A": "1"},
            "inference_environment_variables: found {'A': '1'}; allowed: a list",
        ),
        ("inference_environment_variables", [{"name": "A"}], "'inference_environment_variables.0.default"),
        ("hosting_instance_type_variants.variants", [], "hosting_instance_type_variants.variants: found []"),
        ("deploy_kwargs.model_data_download_timeout", "3600", "model_data_download_timeout: found '3600'"),
        ("inference_enable_network_isolation", "true", "inference_enable_network_isolation: found 'true'"),
        (
            "supported_inference_instance_types",
            "ml.g5.xlarge",
            "supported_inference_instance_types: found 'ml.g5.xlarge'",
        ),
    ],
)
def test_a_damaged_spec_is_told_with_the_field(path: str, value: Any, said: str) -> None:
    with pytest.raises(CatalogueDamaged) as caught:
        document(drop(path, value))
    assert "config lmi-optimized" in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("inference_configs", [], "inference_configs: found []; allowed: a mapping of names to fields"),
        ("inference_configs", {"a": 1}, "inference_configs.a: found 1; allowed: a mapping of fields"),
        (
            "inference_configs",
            {"a": {"component_names": ["b"]}},
            "found 'b'; allowed: one of lmi, lmi-optimized",
        ),
        (
            "inference_config_rankings",
            {"overall": {"rankings": ["x"]}},
            "found 'x'; allowed: one of lmi, lmi-optimized",
        ),
        ("model_id", None, "model_id: found null; allowed: a text"),
        ("version", 3, "version: found 3; allowed: a text"),
    ],
)
def test_a_damaged_head_of_a_spec_is_told(field: str, value: Any, said: str) -> None:
    with pytest.raises(CatalogueDamaged) as caught:
        document(lambda spec: spec.update({field: value}))
    assert said in caught.value.message


PATHS = [
    ("gated_bucket",),
    ("inference_configs", "lmi-optimized"),
    ("inference_config_rankings", "overall"),
    *(
        ("inference_config_components", "lmi-optimized", field)
        for field in best(SPEC)
        if field not in ("hosting_instance_type_variants",)
    ),
    ("inference_config_components", "lmi-optimized", "hosting_instance_type_variants", "variants", "g7e"),
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PATHS), json_values)
def test_whatever_stands_in_a_field_it_is_resolved_or_told(path: tuple[str, ...], value: Any) -> None:
    spec = copy.copy(SPEC)
    place = spec
    for part in path[:-1]:
        place[part] = copy.copy(place[part])
        place = place[part]
    place[path[-1]] = value
    with contextlib.suppress(PeagleError):  # whatever else it raised would fail here
        created = parse_document(json.dumps(spec).encode())
        name = choose_config(created)
        types = ("ml.g7e.2xlarge",)
        resolve_config(created, name, region="us-east-1", instance_types=types, buckets=BUCKETS)
