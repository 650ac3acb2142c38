"""What the URL given to AIPerf says."""

from __future__ import annotations

import pytest

from peagle_sm.aiperf.protocol import Address, parse
from peagle_sm.core.errors import SpecError

AWS = "https://runtime.sagemaker.eu-west-1.amazonaws.com"


def test_the_runtime_apis_own_url_names_endpoint_and_region() -> None:
    found = parse(f"{AWS}/endpoints/my-endpoint")
    assert found == Address(AWS, "my-endpoint", region="eu-west-1")
    assert found.url(streaming=True) == f"{AWS}/endpoints/my-endpoint/invocations-response-stream"
    assert found.url(streaming=False) == f"{AWS}/endpoints/my-endpoint/invocations"
    assert found.headers == {}
    assert parse(f"{AWS}/endpoints/my-endpoint/invocations-response-stream/") == found


def test_parameters_choose_component_variant_model_and_region() -> None:
    found = parse("http://localhost:5000/endpoints/e?component=ic&variant=v&model=&region=us-east-1")
    assert found == Address("http://localhost:5000", "e", "ic", "v", "us-east-1", "")
    assert found.headers == {
        "X-Amzn-SageMaker-Inference-Component": "ic",
        "X-Amzn-SageMaker-Target-Variant": "v",
    }


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("runtime-fips.sagemaker.us-west-2.amazonaws.com", "us-west-2"),
        ("runtime.sagemaker.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("vpce-0a.runtime.sagemaker.us-east-2.vpce.amazonaws.com", "us-east-2"),
        ("localhost:5000", None),
    ],
)
def test_the_region_is_read_from_aws_hosts_only(host: str, region: str | None) -> None:
    assert parse(f"https://{host}/endpoints/e").region == region


@pytest.mark.parametrize(
    "url",
    [
        AWS,
        f"{AWS}/v1/chat/completions",
        f"{AWS}/endpoints/-e",
        f"{AWS}/endpoints/{'e' * 64}",
        "sagemaker://e",
        f"{AWS}/endpoints/e?componnt=ic",
        f"{AWS}/endpoints/e?component=",
        f"{AWS}/endpoints/e?component=a&component=b",
    ],
)
def test_other_urls_are_refused_with_an_example(url: str) -> None:
    with pytest.raises(SpecError, match="--url") as refusal:
        parse(url)
    assert "/endpoints/NAME" in (refusal.value.next_step or "")
