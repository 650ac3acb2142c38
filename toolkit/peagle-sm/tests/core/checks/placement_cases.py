"""Cases of the checks in `peagle_sm.core.checks.placement`: region, instance types, GPUs and host AMI."""

from __future__ import annotations

from tests.core.checks.cases import Case
from tests.core.support import CONTAINER, GPT, LOCAL, TINY

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_TWO_TYPES = "\nplacement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")

CASES = [
    Case(
        "gpus",
        CONTAINER,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {extra_args: {pipeline_parallel_size: 2}}",
        severity="error",
        said="tensor_parallel_size x pipeline_parallel_size x data_parallel_size is 2; ml.p5.4xlarge has 1",
    ),
    Case(
        "region-name",
        TINY,
        "placement: {region: eu-noth-1}",
        LOCAL,
        severity="warning",
        said="Did you mean 'eu-north-1'?",
    ),
    Case(
        "region-name",
        GPT,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nplacement: {{region: xx-east-9}}",
        severity="warning",
        said="'xx-east-9' is not a known region",
    ),
    Case("region-name", GPT, "placement: {region: eu-west-1}"),
    Case(
        "instance-type",
        CONTAINER,
        "placement: {instance_types: [ml.g7e.3xlarge]}",
        severity="error",
        said="found 'ml.g7e.3xlarge'",
    ),
    Case("instance-type", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    Case(
        "jumpstart-instance",
        GPT,
        "placement: {instance_types: [ml.g6e.xlarge]}",
        severity="warning",
        said="not in",
    ),
    Case("jumpstart-instance", GPT, "placement: {instance_types: [ml.p5en.48xlarge]}"),
    Case(
        "instance-families",
        GPT,
        "placement: {instance_types: [ml.g7e.2xlarge, ml.g5.12xlarge]}",
        severity="error",
        said="different images",
    ),
    Case("instance-families", GPT, "placement: {instance_types: [ml.g7e.2xlarge, ml.p5.48xlarge]}"),
    Case(
        "host-ami",
        CONTAINER,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        said="CUDA 13.0 needs 580",
    ),
    Case(
        "host-ami",
        GPT,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        said="of ml.g7e.2xlarge needs 570",
    ),
    Case(
        "host-ami", GPT, "placement: {inference_ami_version: al2023}", severity="error", said="found 'al2023'"
    ),
    Case("host-ami", CONTAINER, "placement: {inference_ami_version: al2023-ami-sagemaker-inference-gpu-4-1}"),
    Case(
        "host-ami-too-new",
        CONTAINER,
        f"{_VLLM}:0.16.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        severity="warning",
        said=(
            "vLLM 0.16.0 on host AMI al2023-ami-sagemaker-inference-gpu-4-1 (driver 580) may end with "
            "Error 803"
        ),
    ),
    Case("host-ami-too-new", CONTAINER, f"{_VLLM}:0.17.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    Case(
        "host-ami-too-new",
        CONTAINER,
        f"{_VLLM}:0.16.0-gpu-py312-cu129-ubuntu22.04-sagemaker\nplacement: {{inference_ami_version: "
        f"al2-ami-sagemaker-inference-gpu-3-1}}",
    ),
    Case(
        "instance-pools-region",
        GPT,
        _TWO_TYPES.replace("{", "{region: eu-west-3, "),
        severity="warning",
        said=(
            "2 types need instance pools, and eu-west-3 is not a known region with them; known: "
            "ap-northeast-1,"
        ),
    ),
    Case("instance-pools-region", GPT, _TWO_TYPES),
    Case("instance-pools-region", GPT, "placement: {region: eu-west-3}"),
    Case("host-ami-unknown", CONTAINER, f"{_VLLM}:0.30.0", severity="warning", said="CUDA version"),
    Case("host-ami-unknown", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu130"),
    Case(
        "gpus",
        GPT,
        "placement: {instance_types: [ml.p5.48xlarge]}",
        severity="warning",
        said="7 of the 8 GPUs",
    ),
    Case(
        "gpus", GPT, "serving: {tensor_parallel_size: 2}", severity="error", said="ml.g7e.2xlarge has 1 GPUs"
    ),
    Case("gpus", GPT, "placement: {instance_types: [ml.p5.48xlarge]}\nserving: {data_parallel_size: 8}"),
    Case(
        "capacity-reservation",
        GPT,
        "placement: {capacity_reservation_arn: 'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p'}",
        severity="warning",
        said="stops serving when it ends",
    ),
    Case(
        "capacity-reservation",
        CONTAINER,
        "placement: {capacity_reservation_arn: "
        "'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p', instance_types: "
        "[ml.g7e.2xlarge, ml.p5.4xlarge]}",
        severity="error",
        said="found several",
    ),
    Case("capacity-reservation", GPT),
    Case(
        "kms-local-storage",
        GPT,
        "security: {kms_key_id: alias/mine}",
        severity="warning",
        said="local storage",
    ),
    Case(
        "instance-unlisted",
        CONTAINER,
        "placement: {instance_types: [ml.g7.8xlarge]}",
        severity="warning",
        said="NVIDIA RTX PRO 4500 Blackwell, x86_64 CPU, driver 570",
    ),
    Case(
        "instance-unlisted",
        CONTAINER,
        "placement: {instance_types: [ml.p6e-gb200.36xlarge]}",
        severity="warning",
        said="arm64",
    ),
    Case(
        "instance-unlisted",
        CONTAINER,
        "placement: {instance_types: [ml.g7.8xlarge], "
        "inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        said="has driver 550",
    ),
    Case("instance-unlisted", CONTAINER, "placement: {instance_types: [ml.g6.12xlarge]}"),
    Case("kms-local-storage", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    Case("network-isolation", GPT, "security: {network_isolation: false}", severity="warning", said="is off"),
    Case("network-isolation", GPT, "security: {network_isolation: true}"),
]
