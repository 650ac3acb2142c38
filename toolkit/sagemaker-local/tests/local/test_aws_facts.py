"""What the local AWS knows of the real one is what peagle-sm's catalogue says, which has the sources."""

from __future__ import annotations

from peagle_sm.core.catalog import known_instance_types, load_catalog
from sagemaker_local import aws_facts
from sagemaker_local.contents.jumpstart import jumpstart_addresses


def test_the_registries_are_those_of_the_catalogue() -> None:
    regions = load_catalog().regions
    assert aws_facts.registries() == {region: entry.registry(region) for region, entry in regions.items()}


def test_the_accelerators_are_those_of_the_catalogue() -> None:
    instances = load_catalog().instances
    assert {name: aws_facts.accelerators_of(name) for name in instances} == {
        name: entry.gpu_count for name, entry in instances.items()
    }
    assert aws_facts.accelerators_of("ml.unheard.large") is None
    assert aws_facts.accelerators_of("p5.48xlarge") is None


def test_the_prices_are_those_of_the_catalogue() -> None:
    rows = {(row.region, row.instance): row for row in load_catalog().prices if row.kind == "sagemaker"}
    for group in aws_facts.data_file("prices.yaml")["groups"]:
        for name, usd in group["prices"].items():
            row = rows[group["region"], name]
            assert (usd, group["date"]) == (row.usd_per_hour, row.date), name


def test_the_instance_types_of_an_endpoint_are_botocores() -> None:
    assert aws_facts.instance_types("ProductionVariant") == known_instance_types()


def test_the_images_that_aws_publishes_are_recognised() -> None:
    catalog = load_catalog()
    for image in (
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0",
        "public.ecr.aws/deep-learning-containers/vllm:0.30.0",
        "public.ecr.aws/somebody/vllm:0.30.0",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu",
        "vllm:cpu",
    ):
        assert aws_facts.published_by_aws(image) == catalog.published_by_aws(image), image


def test_jumpstarts_models_lie_where_the_catalogue_expects_them() -> None:
    uris = {address.uri for address in jumpstart_addresses("us-east-1")}
    for entry in load_catalog().jumpstart.values():
        if not entry.gated:
            assert {entry.target("us-east-1"), entry.draft("us-east-1")} <= uris
