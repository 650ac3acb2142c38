"""Checks of an endpoint's placement: region, instances, GPUs, network.

They also report what the local SageMaker uses instead of the spec's region and roles.
"""

from __future__ import annotations

from peagle_sm.core.catalog import known_instance_types
from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.endpoint_config import host_ami
from peagle_sm.core.spec.validation import suggest
from peagle_sm.core.words import Finding


def unused_gpus(draft: Draft) -> int:
    """Return the unused GPUs of one instance of the first type; 0 if unknown."""
    entry = draft.instance(draft.instance_types[0])
    serving = draft.spec.serving
    used_gpus = draft.gpus_per_replica * serving.data_parallel_size
    return max(0, entry.gpu_count - used_gpus) if entry else 0


@check(
    "instance-type",
    why="AWS refuses a type that is not available for endpoints.",
    source="botocore's service model: ProductionVariantInstanceType",
    remedy="Use a type that is available for hosting.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariant.html",
)
def instance_type(draft: Draft) -> Findings:
    """An instance type that is not available for endpoints."""
    known = known_instance_types()
    for name in draft.instance_types:
        if name not in known:
            yield Finding(
                "error",
                f"placement.instance_types: found {name!r}; allowed: one of the {len(known)} types that AWS "
                f"has for endpoints.{suggest('ml.' + name.lower().removeprefix('ml.'), known)}",
                "Change 'placement.instance_types'.",
            )


@check(
    "jumpstart-instance",
    why="JumpStart supports the model only on the types in its spec.",
    source="JumpStart spec: supported_inference_instance_types",
    remedy="Use one of the listed types, or test this type first.",
    severity="warning",
    url="https://github.com/aws/sagemaker-python-sdk",
)
def jumpstart_instance(draft: Draft) -> Findings:
    """An instance type that JumpStart's spec does not list for the model."""
    if draft.jumpstart is None:
        return
    for name in draft.instance_types:
        if name not in draft.jumpstart.instance_types:
            listed = ", ".join(draft.jumpstart.instance_types)
            yield f"{name} is not in JumpStart's list for the model: {listed}"


@check(
    "instance-families",
    why="A model has one image, but JumpStart uses different images for these families.",
    source="JumpStart spec: hosting_instance_type_variants",
    remedy="List types of families that share an image.",
    url="https://github.com/aws/sagemaker-python-sdk",
)
def instance_families(draft: Draft) -> Findings:
    """Instance types for which JumpStart would use different images."""
    if draft.jumpstart is None or draft.spec.image is not None:
        return
    images = {draft.jumpstart.image_for(name) for name in draft.instance_types}
    if len(images) > 1:
        yield "placement.instance_types: JumpStart has different images for these families"


@check(
    "host-ami",
    why="With a mismatch the engine crashes without a log line, or the endpoint stays in Creating, billed.",
    source="SageMaker API: InferenceAmiVersion; drivers 535, 550 (CUDA 12.4), 580 (CUDA 13.0)",
    remedy="Leave placement.inference_ami_version out: the right one is chosen automatically.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariant.html",
)
def host_ami_driver(draft: Draft) -> Findings:
    """A host AMI whose driver is too old for the image's CUDA or for the GPU, or that is not known."""
    images, ami = draft.catalog.images, host_ami(draft)
    if ami is None:
        gpu = any((entry := draft.instance(name)) and entry.gpu_count for name in draft.instance_types)
        if gpu and draft.image is not None:
            yield Finding(
                "warning",
                f"the CUDA version of {draft.image.uri} is not known, so no host AMI is chosen, and AWS's "
                "default has an old driver",
                "Set placement.inference_ami_version to the version that fits the image.",
            )
        return
    if ami not in images.amis:
        allowed = f"{', '.join(sorted(images.amis))}.{suggest(ami, images.amis)}"
        yield f"placement.inference_ami_version: found {ami!r}; allowed: {allowed}"
        return
    driver = images.amis[ami].driver
    cuda = draft.image.cuda if draft.image else None
    needed = images.driver_for_cuda.get(cuda.partition(".")[0]) if cuda else None
    if needed is not None and driver < needed:
        yield f"host AMI {ami} has driver {driver}; the image's CUDA {cuda} needs {needed}"
    for name in draft.instance_types:
        entry = draft.instance(name)
        if entry is not None and entry.min_driver is not None and driver < entry.min_driver:
            yield f"host AMI {ami} has driver {driver}; the {entry.gpu} of {name} needs {entry.min_driver}"


# Families that AWS hosts but the catalogue does not have: GPU, least driver.
_UNLISTED_GPUS = {
    "g4dn": ("NVIDIA T4", 450),
    "g7": ("NVIDIA RTX PRO 4500 Blackwell", 570),
    "p2": ("NVIDIA K80", 450),
    "p3": ("NVIDIA V100", 450),
    "p6e-gb200": ("NVIDIA GB200", 570),
}


@check(
    "instance-unlisted",
    why="Its memory, GPUs and host AMI are guesses: the engine may not start, and is billed meanwhile.",
    source="this project: the catalogue of instances; AWS: EC2 G7 and P6e-GB200; NVIDIA: driver releases",
    remedy="Use a type of the catalogue, or check its GPUs, memory and driver on AWS's page and set "
    "placement.inference_ami_version.",
    url="https://aws.amazon.com/ec2/instance-types/",
)
def instance_unlisted(draft: Draft) -> Findings:
    """An instance type that AWS has for endpoints, but the catalogue does not."""
    if draft.context.local:
        return
    ami = host_ami(draft)
    chosen = f"host AMI {ami}" if ami else "AWS's default host AMI"
    host = draft.catalog.images.amis.get(ami or "")
    for name in draft.instance_types:
        has_gpus = name.startswith(("ml.g", "ml.p"))
        if name not in known_instance_types() or draft.instance(name) is not None or not has_gpus:
            continue
        yield Finding(
            "warning",
            f"placement.instance_types: {name} is not in the catalogue: its GPUs, driver and CPU (x86_64 "
            f"or arm64) are unknown, and the plan guesses {chosen}",
        )
        gpu, least = _UNLISTED_GPUS.get(name.split(".")[1], ("", 0))
        if host is not None and host.driver < least:
            yield f"host AMI {ami} has driver {host.driver}; the {gpu} of {name} needs {least}"


@check(
    "gpus",
    why="All GPUs of an instance are billed; the engine does not start if it needs more.",
    source="AWS EC2 instance pages; vLLM: tensor x pipeline x data parallel size",
    remedy="Raise serving.data_parallel_size (more replicas) or serving.tensor_parallel_size (more GPUs for "
    "each replica) so that all GPUs are used, or use a smaller instance.",
    url="https://aws.amazon.com/ec2/instance-types/",
)
def gpus(draft: Draft) -> Findings:
    """Unused GPUs, or more GPUs requested than the instance has."""
    serving = draft.spec.serving
    needed_gpus = draft.gpus_per_replica * serving.data_parallel_size
    names = ["tensor_parallel_size", *(["pipeline_parallel_size"] if draft.pipeline_stages > 1 else [])]
    for name in draft.instance_types:
        entry = draft.instance(name)
        if entry is None:
            continue
        if needed_gpus > max(entry.gpu_count, 1):
            yield Finding(
                "error",
                f"serving: {' x '.join([*names, 'data_parallel_size'])} is {needed_gpus}; "
                f"{name} has {entry.gpu_count} GPUs",
                f"Lower {', '.join(names)} or data_parallel_size.",
            )
        elif entry.gpu_count > needed_gpus:
            idle = entry.gpu_count - needed_gpus
            yield Finding(
                "warning", f"{idle} of the {entry.gpu_count} GPUs of {name} would be billed and unused"
            )


@check(
    "capacity-reservation",
    why="When the training plan ends, the endpoint stops serving.",
    source="SageMaker API: CapacityReservationConfig (capacity-reservations-only)",
    remedy="Choose max_lifetime_hours to end before the training plan, and list one instance type.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariantCapacityReservationConfig.html",
)
def capacity_reservation(draft: Draft) -> Findings:
    """A capacity reservation and its consequences."""
    if draft.spec.placement.capacity_reservation_arn is None:
        return
    yield Finding("warning", "the endpoint runs only in the reservation and stops serving when it ends")
    if len(draft.instance_types) > 1:
        yield "placement.instance_types: found several; allowed with a capacity reservation: one"


@check(
    "kms-local-storage",
    why="The hardware encrypts local NVMe disks with a key of its own, which you cannot revoke.",
    source="SageMaker API: CreateEndpointConfig.KmsKeyId (it does not encrypt instance local storage); "
    "aws/sagemaker-python-sdk issue 3677 (refused in 2023)",
    remedy="Accept the disks' own encryption, or choose an instance type without local storage. If "
    "CreateEndpointConfig refuses the key, leave the field out; nothing is billed by then.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpointConfig.html",
)
def kms_local_storage(draft: Draft) -> Findings:
    """A KMS key with an instance type that has local disks."""
    if draft.spec.security.kms_key_id is None:
        return
    for name in draft.instance_types:
        entry = draft.instance(name)
        if entry is not None and entry.local_storage:
            yield f"security.kms_key_id: does not encrypt the local storage of {name}"


@check(
    "network-isolation",
    why="A container with a network can send prompts and answers anywhere, and download code.",
    source="SageMaker API: EnableNetworkIsolation",
    remedy="Set security.network_isolation: true; SageMaker still downloads the weights.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModel.html",
)
def network_isolation(draft: Draft) -> Findings:
    """Network isolation turned off."""
    if not draft.spec.security.network_isolation:
        yield "security.network_isolation is off"
