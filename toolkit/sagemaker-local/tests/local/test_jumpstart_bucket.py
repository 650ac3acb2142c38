"""The local JumpStart bucket: a manifest and four specs in the shape of AWS's own."""

from __future__ import annotations

import json
from typing import Any

from peagle_sm.core.catalog import load_catalog
from sagemaker_local.contents.jumpstart_bucket import MADE_VERSION, known_spec, specs
from tests.local.serving import Server


def test_manifest_and_specs_are_read_from_the_local_bucket_as_from_aws_s(server: Server) -> None:
    s3 = server.client("s3")

    def read(key: str) -> Any:
        return json.loads(s3.get_object(Bucket="jumpstart-cache-prod-us-east-1", Key=key)["Body"].read())

    rows = read("models_manifest.json")
    assert [set(row) for row in rows] == [{"model_id", "version", "min_version", "spec_key"}] * 4
    assert [read(row["spec_key"])["model_id"] for row in rows] == [row["model_id"] for row in rows]
    heads = s3.list_objects_v2(Bucket="jumpstart-cache-prod-us-east-1", Prefix="peagle-sm-local/p-eagle/")
    assert "peagle-sm-local/p-eagle/config.json" in [row["Key"] for row in heads["Contents"]]
    assert s3.head_bucket(Bucket="jumpstart-private-cache-prod-us-east-1")


def test_a_made_spec_says_so_and_the_known_one_does_not() -> None:
    known, *made = specs()
    assert "usage_info_message" not in known
    assert known["version"] == "3.38.0"
    for spec in made:
        assert "Generated for peagle-sm's local SageMaker" in spec["usage_info_message"]
        assert spec["version"] == MADE_VERSION
        best = spec["inference_config_components"]["lmi-optimized"]
        assert best["hosting_prepacked_artifact_key"].startswith("peagle-sm-local/")


def test_an_image_is_named_for_every_region_of_the_catalogue() -> None:
    variants = known_spec()["inference_config_components"]["lmi-optimized"]["hosting_instance_type_variants"]
    assert set(variants["regional_aliases"]) == set(load_catalog().regions)
    assert variants["regional_aliases"]["cn-north-1"]["gpu_ecr_uri_2"] == (
        "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    )
