"""Checks of an endpoint's placement: region, instances, GPUs, network.

They also report what the local SageMaker uses instead of the spec's region and roles.
"""

from __future__ import annotations

import difflib

from peagle_sm.core.catalog import known_instance_types, known_regions
from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.endpoint_config import host_ami
from peagle_sm.core.spec.validation import suggest
from peagle_sm.core.words import Finding


@check(
    "region-name",
    why="Calls fail to connect if the region does not exist or has no SageMaker.",
    source="botocore's endpoint data: regions of SageMaker; regions of AWS's image registries",
    remedy="Correct placement.region, or continue if the region is newer than this botocore.",
    severity="warning",
    url="https://github.com/boto/botocore",
)
def region_name(draft: Draft) -> Findings:
    """A region that botocore does not list for SageMaker."""
    given = draft.spec.placement.region
    if given is None or any(missing.field == "placement.region" for missing in draft.missing_fields):
        return  # as a missing fact it has been named already
    known = known_regions() | draft.catalog.regions.keys()
    if given not in known:
        yield f"placement.region: {given!r} is not a known region.{suggest(given, known)}"


def unused_gpus(draft: Draft) -> int:
    """Return the unused GPUs of one instance of the first type; 0 if unknown."""
    entry = draft.instance(draft.instance_types[0])
    serving = draft.spec.serving
    used_gpus = draft.gpus_per_replica * serving.data_parallel_size
    return max(0, entry.gpu_count - used_gpus) if entry else 0


def _family(name: str) -> str:
    return name.lower().removeprefix("ml.").partition(".")[0]


def _known_type(name: str, draft: Draft) -> str:
    """Suggest the closest type of a similar family, else a few types with GPUs."""
    known = known_instance_types()
    families = {_family(each) for each in known}
    family = _family(name)
    near = [family] if family in families else difflib.get_close_matches(family, sorted(families), cutoff=0.6)
    hint = suggest(
        f"ml.{name.lower().removeprefix('ml.')}", [each for each in known if _family(each) in near]
    )
    if hint:
        return hint
    smallest: dict[str, str] = {}
    for each, entry in draft.catalog.instances.items():
        if entry.gpu_count == 1 and each in known:
            smallest.setdefault(_family(each), each)
    return f" With one GPU: {', '.join(smallest.values())}."


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
                f"has for endpoints.{_known_type(name, draft)}",
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
    """A host AMI whose driver is too old for the image's CUDA or for the GPU."""
    images, ami = draft.catalog.images, host_ami(draft)
    if ami is None:
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


@check(
    "host-ami-too-new",
    why="The image's CUDA libraries conflict with the host's newer driver: the engine ends with Error 803.",
    source="vllm issue 33992: vLLM 0.15 and 0.16 on driver 580",
    remedy="Use an image with vLLM 0.17 or later.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/issues/33992",
)
def host_ami_too_new(draft: Draft) -> Findings:
    """An image with vLLM below 0.17 on a host AMI with driver 580."""
    images, ami = draft.catalog.images, host_ami(draft)
    clash, image = images.driver_clash, draft.image
    if ami is None or ami not in images.amis or image is None or image.version is None:
        return
    if image.at_least(clash.below):
        return
    driver = images.amis[ami].driver
    if driver >= clash.driver:
        yield f"image: vLLM {image.version_text} on host AMI {ami} (driver {driver}) may end with Error 803"


# Accelerators of types that AWS hosts but the catalogue does not have: GPU, CPU architecture, least driver.
_OTHER_GPUS: dict[str, tuple[str, str, int]] = {
    "g4dn": ("NVIDIA T4", "x86_64", 450),
    "g7": ("NVIDIA RTX PRO 4500 Blackwell", "x86_64", 570),
    "p2": ("NVIDIA K80", "x86_64", 450),
    "p3": ("NVIDIA V100", "x86_64", 450),
    "p6e-gb200": ("NVIDIA GB200", "arm64", 570),
}


@check(
    "instance-unlisted",
    why="Its memory, GPUs and host AMI are guesses: the engine may not start, and is billed meanwhile.",
    source="AWS: EC2 G7 (RTX PRO 4500 Blackwell), P6e-GB200 (Grace, an Arm CPU); NVIDIA: driver releases",
    remedy="Use a type of the catalogue, or check its GPUs, memory and driver on AWS's page and set "
    "placement.inference_ami_version.",
    url="https://aws.amazon.com/ec2/instance-types/",
)
def instance_unlisted(draft: Draft) -> Findings:
    """An instance type that AWS has for endpoints, but the catalogue does not."""
    if draft.context.local:
        return
    hosted_types, ami = known_instance_types(), host_ami(draft)
    entry = draft.catalog.images.amis.get(ami or "")
    driver = entry.driver if entry else None
    chosen = f"host AMI {ami} (driver {driver})" if ami else "AWS's default host AMI"
    for name in draft.instance_types:
        family = _family(name)
        if name not in hosted_types or draft.instance(name) is not None or not family.startswith(("g", "p")):
            continue
        gpu, architecture, least = _OTHER_GPUS.get(family, ("its GPUs", "unknown", 0))
        yield Finding(
            "warning",
            f"placement.instance_types: {name} is not in the catalogue: {gpu}, {architecture} CPU"
            f"{f', driver {least} or newer' if least else ''}; the plan guesses {chosen}",
        )
        if architecture == "arm64":
            yield Finding(
                "warning", f"image: {name} needs an image for arm64; AWS's vLLM images are for x86_64"
            )
        if driver is not None and driver < least:
            yield Finding("error", f"host AMI {ami} has driver {driver}; the {gpu} of {name} needs {least}")


@check(
    "instance-pools-region",
    why="CreateEndpointConfig refuses several instance types in regions without instance pools.",
    source="aws-samples/sagemaker-genai-hosting-examples: 16 regions in May 2026",
    remedy="List one instance type, or choose one of those regions. The list may lack newer regions.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/dg/realtime-endpoints-heterogeneous.html",
)
def instance_pools_region(draft: Draft) -> Findings:
    """Several instance types in a region without instance pools."""
    known = draft.catalog.instance_pools.regions
    if len(draft.instance_types) < 2 or draft.context.local or draft.region in known:
        return
    yield (
        f"placement.instance_types: {len(draft.instance_types)} types need instance pools, and "
        f"{draft.region} is not a known region with them; known: {', '.join(known)}"
    )


@check(
    "host-ami-unknown",
    why="AWS's default host has an old driver; a CUDA 13 image crashes on it before its first log line.",
    source="SageMaker API: InferenceAmiVersion",
    remedy="Set placement.inference_ami_version to the version that fits the image.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ProductionVariant.html",
)
def host_ami_unknown(draft: Draft) -> Findings:
    """A GPU instance and an image whose tag does not contain its CUDA version."""
    gpu = any((entry := draft.instance(name)) and entry.gpu_count for name in draft.instance_types)
    if gpu and draft.image is not None and host_ami(draft) is None:
        yield f"the CUDA version of {draft.image.uri} is not known, so no host AMI is chosen"


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
