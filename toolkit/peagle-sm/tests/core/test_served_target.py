"""Which model an endpoint serves, and what its figures must say."""

from __future__ import annotations

import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.served_target import served_target

ARTIFACTS = {"target": "s3://local/tiny/", "smollm2": "s3://local/smollm2/"}
CPU = "account.dkr.ecr.region.amazonaws.com/vllm:0.32.0-cpu"


@pytest.mark.parametrize(
    ("uri", "model", "local", "image", "figures_of"),
    [
        ("s3://local/tiny/", None, True, None, "small stand-in weights"),
        ("s3://local/tiny/", "gpt-oss-20b", True, None, "small stand-in weights"),
        ("s3://mine/copy/", "tiny-code", True, None, "small stand-in weights"),
        ("s3://jumpstart-cache-prod-us-east-1/gpt/", "gpt-oss-20b", True, None, "small stand-in weights"),
        ("s3://local/smollm2", None, True, None, "SmolLM2-135M-Instruct on a CPU"),
        ("s3://mine/copy/", "smollm2-135m-instruct", True, None, "SmolLM2-135M-Instruct on a CPU"),
        ("s3://mine/models/x/", "my-llama", True, None, "my-llama on a CPU"),
        ("s3://mine/models/my-llama/", None, True, None, "my-llama on a CPU"),
        (None, None, True, None, "a model on a CPU"),
        ("s3://mine/models/my-llama/", None, False, CPU, "my-llama on a CPU"),
        ("s3://jumpstart-cache-prod-us-east-1/gpt/", "gpt-oss-20b", False, "vllm:0.32.0-gpu", None),
    ],
)
def test_figures_say_which_model_ran_on_a_cpu(
    uri: str | None, model: str | None, local: bool, image: str | None, figures_of: str | None
) -> None:
    target = served_target(
        uri, model, load_catalog(), local=local, image=image, artifacts=ARTIFACTS if local else {}
    )
    assert target.figures_of == figures_of
    assert target.stand_in == (figures_of == "small stand-in weights")
    assert (figures_of or "") in target.note
    assert ("def " in target.example) == target.stand_in
