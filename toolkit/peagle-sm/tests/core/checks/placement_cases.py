"""Cases of the checks in `peagle_sm.core.checks.placement`: region, instance types, GPUs and host AMI."""

from __future__ import annotations

from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, GPT

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_TWO_TYPES = "\nplacement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")

CASES = [
    error(
        "gpus",
        "tensor_parallel_size x pipeline_parallel_size x data_parallel_size is 2; ml.p5.4xlarge has 1",
        CONTAINER,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {extra_args: {pipeline_parallel_size: 2}}",
    ),
    error(
        "instance-type", "found 'ml.g7e.3xlarge'", CONTAINER, "placement: {instance_types: [ml.g7e.3xlarge]}"
    ),
    Case("instance-type", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    warning("jumpstart-instance", "not in", GPT, "placement: {instance_types: [ml.g6e.xlarge]}"),
    Case("jumpstart-instance", GPT, "placement: {instance_types: [ml.p5en.48xlarge]}"),
    error(
        "instance-families",
        "different images",
        GPT,
        "placement: {instance_types: [ml.g7e.2xlarge, ml.g5.12xlarge]}",
    ),
    Case("instance-families", GPT, "placement: {instance_types: [ml.g7e.2xlarge, ml.p5.48xlarge]}"),
    error(
        "host-ami",
        "CUDA 13.0 needs 580",
        CONTAINER,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
    ),
    error(
        "host-ami",
        "of ml.g7e.2xlarge needs 570",
        GPT,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
    ),
    error("host-ami", "found 'al2023'", GPT, "placement: {inference_ami_version: al2023}"),
    Case("host-ami", CONTAINER, "placement: {inference_ami_version: al2023-ami-sagemaker-inference-gpu-4-1}"),
    warning("host-ami", "CUDA version", CONTAINER, f"{_VLLM}:0.30.0"),
    Case("host-ami", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu130"),
    warning("gpus", "7 of the 8 GPUs", GPT, "placement: {instance_types: [ml.p5.48xlarge]}"),
    error("gpus", "ml.g7e.2xlarge has 1 GPUs", GPT, "serving: {tensor_parallel_size: 2}"),
    Case("gpus", GPT, "placement: {instance_types: [ml.p5.48xlarge]}\nserving: {data_parallel_size: 8}"),
    warning(
        "capacity-reservation",
        "stops serving when it ends",
        GPT,
        "placement: {capacity_reservation_arn: 'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p'}",
    ),
    error(
        "capacity-reservation",
        "found several",
        CONTAINER,
        "placement: {capacity_reservation_arn: "
        "'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p', instance_types: "
        "[ml.g7e.2xlarge, ml.p5.4xlarge]}",
    ),
    Case("capacity-reservation", GPT),
    warning("kms-local-storage", "local storage", GPT, "security: {kms_key_id: alias/mine}"),
    warning(
        "instance-unlisted",
        "ml.g7.8xlarge is not in the catalogue",
        CONTAINER,
        "placement: {instance_types: [ml.g7.8xlarge]}",
    ),
    Case(
        "instance-unlisted",
        CONTAINER,
        "placement: {instance_types: [ml.g7.8xlarge], "
        "inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        severity="error",
        text="has driver 550",
    ),
    Case("instance-unlisted", CONTAINER, "placement: {instance_types: [ml.g6.12xlarge]}"),
    Case("kms-local-storage", CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge]}"),
    warning("network-isolation", "is off", GPT, "security: {network_isolation: false}"),
    Case("network-isolation", GPT, "security: {network_isolation: true}"),
]
