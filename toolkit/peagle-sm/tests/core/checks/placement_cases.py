"""Cases of the checks in `peagle_sm.core.checks.placement`: region, instance types, GPUs and host AMI."""

from __future__ import annotations

from tests.core.checks.cases import Case
from tests.core.support import CONTAINER, GPT

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_TWO_TYPES = "\nplacement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")

CASES = [
    Case(
        "gpus",
        CONTAINER,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {extra_args: {pipeline_parallel_size: 2}}",
        severity="error",
        text="tensor_parallel_size x pipeline_parallel_size x data_parallel_size is 2; ml.p5.4xlarge has 1",
    ),
    Case(
        "instance-type",
        CONTAINER,
        "placement: {instance_types: [ml.g7e.3xlarge]}",
        severity="error",
        text="found 'ml.g7e.3xlarge'",
    ),
    Case("instance-type", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    Case(
        "jumpstart-instance",
        GPT,
        "placement: {instance_types: [ml.g6e.xlarge]}",
        severity="warning",
        text="not in",
    ),
    Case("jumpstart-instance", GPT, "placement: {instance_types: [ml.p5en.48xlarge]}"),
    Case(
        "instance-families",
        GPT,
        "placement: {instance_types: [ml.g7e.2xlarge, ml.g5.12xlarge]}",
        severity="error",
        text="different images",
    ),
    Case("instance-families", GPT, "placement: {instance_types: [ml.g7e.2xlarge, ml.p5.48xlarge]}"),
    Case(
        "host-ami",
        CONTAINER,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        text="CUDA 13.0 needs 580",
    ),
    Case(
        "host-ami",
        GPT,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        text="of ml.g7e.2xlarge needs 570",
    ),
    Case(
        "host-ami",
        GPT,
        "placement: {inference_ami_version: al2023}",
        severity="error",
        text="found 'al2023'",
    ),
    Case("host-ami", CONTAINER, "placement: {inference_ami_version: al2023-ami-sagemaker-inference-gpu-4-1}"),
    Case("host-ami-unknown", CONTAINER, f"{_VLLM}:0.30.0", severity="warning", text="CUDA version"),
    Case("host-ami-unknown", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu130"),
    Case(
        "gpus",
        GPT,
        "placement: {instance_types: [ml.p5.48xlarge]}",
        severity="warning",
        text="7 of the 8 GPUs",
    ),
    Case(
        "gpus",
        GPT,
        "serving: {tensor_parallel_size: 2}",
        severity="error",
        text="ml.g7e.2xlarge has 1 GPUs",
    ),
    Case("gpus", GPT, "placement: {instance_types: [ml.p5.48xlarge]}\nserving: {data_parallel_size: 8}"),
    Case(
        "capacity-reservation",
        GPT,
        "placement: {capacity_reservation_arn: 'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p'}",
        severity="warning",
        text="stops serving when it ends",
    ),
    Case(
        "capacity-reservation",
        CONTAINER,
        "placement: {capacity_reservation_arn: "
        "'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p', instance_types: "
        "[ml.g7e.2xlarge, ml.p5.4xlarge]}",
        severity="error",
        text="found several",
    ),
    Case("capacity-reservation", GPT),
    Case(
        "kms-local-storage",
        GPT,
        "security: {kms_key_id: alias/mine}",
        severity="warning",
        text="local storage",
    ),
    Case(
        "instance-unlisted",
        CONTAINER,
        "placement: {instance_types: [ml.g7.8xlarge]}",
        severity="warning",
        text="ml.g7.8xlarge is not in the catalogue",
    ),
    Case("instance-unlisted", CONTAINER, "placement: {instance_types: [ml.g6.12xlarge]}"),
    Case("kms-local-storage", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    Case("network-isolation", GPT, "security: {network_isolation: false}", severity="warning", text="is off"),
    Case("network-isolation", GPT, "security: {network_isolation: true}"),
]
