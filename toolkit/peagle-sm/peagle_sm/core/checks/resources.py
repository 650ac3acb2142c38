"""Checks of a deploy's needs in AWS: quotas, capacity, image, weights, keys.

They evaluate facts that were read from AWS, also about the network and the prices.
"""

from __future__ import annotations

from datetime import timedelta

from peagle_sm.core.checks.base import (
    Artifacts,
    EcrImage,
    Findings,
    Key,
    KeyRights,
    Network,
    Prefix,
    Quotas,
    Reservation,
    check,
)
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding

_QUOTAS = "https://docs.aws.amazon.com/general/latest/gr/sagemaker.html"
_S3_SOURCE = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3ModelDataSource.html"
ALL_INSTANCES = "Number of instances across active endpoints"
_CODE = (".py", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_FREE_ADDRESSES = 2


def quota_name(instance_type: str) -> str:
    """Return the name of an instance type's endpoint quota in Service Quotas."""
    return f"{instance_type} for endpoint usage"


def instances_needed(draft: Draft) -> int:
    """Return the most instances at once, including an update's second fleet."""
    most = max(draft.spec.instance_bounds[1], draft.spec.placement.instance_count)
    return most + draft.spec.placement.instance_count if _second_fleet(draft) else most


def _second_fleet(draft: Draft) -> bool:
    return draft.context.stack is not None and draft.spec.update == "in-place"


@check(
    "quota-instances",
    reads="quotas",
    why="CreateEndpoint is refused (ResourceLimitExceeded). New accounts have 0 of every GPU type, and an "
    "increase can take days.",
    source="Service Quotas: `<type> for endpoint usage`; amazon-sagemaker-examples issue 593 (0 at first)",
    remedy="Request more in the Service Quotas console: Amazon SageMaker, the quota in the message.",
    url=_QUOTAS,
)
def quota_instances(fact: Quotas, draft: Draft) -> Findings:
    """An instance type quota that is too small, with other endpoints counted."""
    if draft.spec.placement.capacity_reservation_arn is not None:
        return
    need = instances_needed(draft)
    short: list[str] = []
    for name in draft.instance_types:
        granted = fact.granted.get(name)
        used = fact.in_use.get(name, 0) - fact.own_in_use.get(name, 0)
        if granted is None:
            short.append(
                f"this account has no quota {quota_name(name)!r}: check that {draft.region} has the type"
            )
        elif granted - used < need:
            others = f", {used} in use by other endpoints" if used else ""
            short.append(f"{quota_name(name)!r} is {granted:g}{others}; needed: {need}")
    left = len(draft.instance_types) - len(short)
    for message in short:
        yield Finding("warning" if left else "error", message)


@check(
    "quota-all-instances",
    reads="quotas",
    why="CreateEndpoint is refused (ResourceLimitExceeded), even with a sufficient quota for the type.",
    source=f"Service Quotas: `{ALL_INSTANCES}`",
    remedy="Delete unused endpoints (`peagle-sm list --all`), or request a higher quota.",
    url=_QUOTAS,
)
def quota_all_instances(fact: Quotas, draft: Draft) -> Findings:
    """Too many instances in all endpoints together."""
    if fact.all_granted is None:
        return
    used = sum(fact.in_use.values()) - sum(fact.own_in_use.values())
    if fact.all_granted - used < instances_needed(draft):
        yield (
            f"{ALL_INSTANCES!r} is {fact.all_granted:g}, {used} in use by other endpoints; "
            f"needed: {instances_needed(draft)}"
        )


@check(
    "reservation",
    reads="reservation",
    why="With capacity-reservations-only an endpoint runs only while its reservation is active.",
    source="SageMaker API: DescribeTrainingPlan; CapacityReservationConfig",
    remedy="Use an Active training plan for endpoints that has the type and lasts for max_lifetime_hours.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingPlan.html",
)
def reservation(fact: Reservation, draft: Draft) -> Findings:
    """A training plan that does not fit the endpoint."""
    if draft.spec.placement.capacity_reservation_arn is None:
        return
    if fact.problem is not None:
        yield f"placement.capacity_reservation_arn: {fact.problem}"
        return
    if fact.status != "Active":
        yield f"the training plan is {fact.status or 'without a status'}; needed: Active"
    if fact.targets and "endpoint" not in fact.targets:
        yield f"the training plan is for {', '.join(fact.targets)}; needed: endpoint"
    for name in draft.instance_types:
        if fact.instance_types and name not in fact.instance_types:
            yield f"the training plan has {', '.join(fact.instance_types)}; needed: {name}"
    if fact.free is not None and fact.free < instances_needed(draft):
        yield f"the training plan has {fact.free} free; needed: {instances_needed(draft)}"
    hours = timedelta(hours=draft.spec.lifecycle.max_lifetime_hours)
    now = draft.context.now
    if fact.ends is not None and now is not None and now + hours > fact.ends:
        yield Finding(
            "warning", f"the training plan ends {fact.ends:%Y-%m-%d %H:%M}, before the lifetime ends"
        )


@check(
    "image-exists",
    reads="image",
    why="Without its image an endpoint stays in Creating, billed, and fails without a log line.",
    source="Amazon ECR: BatchGetImage; aws/deep-learning-containers issue 5657",
    remedy="Push the image, correct its tag, or let this account and sagemaker.amazonaws.com pull it.",
    url="https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_BatchGetImage.html",
)
def image_exists(fact: EcrImage, draft: Draft) -> Findings:
    """An image that its registry does not have."""
    if not fact.exists:
        aws = draft.image_published_by_aws
        yield Finding(
            "error",
            f"image: {fact.uri} does not exist: {fact.reason or 'not found'}",
            "Use a tag of the releases of aws/deep-learning-containers." if aws else "",
        )


@check(
    "artifacts-readable",
    reads="artifacts",
    why="CreateModel refuses a prefix without objects; an unreadable one fails after billing has started.",
    source="SageMaker API: S3ModelDataSource; aws/amazon-sagemaker-examples issue 4479",
    remedy="Correct the S3 URI, or upload the files.",
    url=_S3_SOURCE,
)
def artifacts_readable(fact: Artifacts, _: Draft) -> Findings:
    """A prefix of target or head that is empty, or whose bucket does not exist."""
    for field, prefix in fact.all:
        if prefix.problem is not None:
            yield f"{field}: {prefix.uri}: {prefix.problem}"
        elif not any(prefix.keys):
            yield f"{field}: no objects exist below {prefix.uri}"


@check(
    "artifacts-region",
    reads="artifacts",
    why="SageMaker loads weights only from its own region; another region is refused, or slow and billed.",
    source="SageMaker API: CreateModel (the bucket must be in the endpoint's region)",
    remedy="Copy the files to a bucket in the endpoint's region.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ContainerDefinition.html",
)
def artifacts_region(fact: Artifacts, draft: Draft) -> Findings:
    """A bucket in another region than the endpoint."""
    for field, prefix in fact.all:
        if prefix.region not in (None, draft.region):
            yield f"{field}: {prefix.uri} is in {prefix.region}; needed: {draft.region}"


@check(
    "artifacts-files",
    reads="artifacts",
    why="vLLM does not start without config.json; pickles and Python files can run any code.",
    source="Hugging Face: safetensors; vLLM: trust_remote_code",
    remedy="Upload config.json and safetensors only; leave .bin, .pt and .py files out.",
    url="https://huggingface.co/docs/safetensors/index",
)
def artifacts_files(fact: Artifacts, draft: Draft) -> Findings:
    """A prefix without config.json or weights, or with files that are code."""
    beside = draft.head_beside_target
    for field, prefix in fact.all:
        if prefix.problem is not None or not any(prefix.keys):
            continue
        names = [key for key in prefix.keys if "/" not in key]
        for wanted in ("config.json", ".safetensors"):
            if not prefix.more and not any(name.endswith(wanted) for name in names):
                what = wanted if wanted[0] != "." else f"*{wanted}"
                yield f"{field}: {prefix.uri} has no {what}"
        code = [
            key
            for key in prefix.keys
            if key.endswith(_CODE) and not (beside and field == "model_uri" and key.startswith(f"{beside}/"))
        ]
        if code:
            names_text = ", ".join(code[:3]) + (" …" if len(code) > 3 else "")
            yield Finding("warning", f"{field}: {prefix.uri} has files that can run code: {names_text}")


@check(
    "artifacts-markers",
    reads="artifacts",
    why="SageMaker makes a file of each object below the prefix; a name that ends in / fails the deployment.",
    source="SageMaker API: S3ModelDataSource.CompressionType (do not use the S3 console's folders)",
    remedy="Delete the empty objects with the commands in the message.",
    url=_S3_SOURCE,
)
def artifacts_markers(fact: Artifacts, _: Draft) -> Findings:
    """Empty objects that the S3 console makes for folders."""
    for field, prefix in fact.all:
        markers = [prefix.uri + key for key in prefix.keys if not key or key.endswith("/")]
        if markers:
            commands = "; ".join(f"`aws s3 rm {marker}`" for marker in markers[:3])
            yield f"{field}: {len(markers)} empty folder objects below {prefix.uri}: {commands}"


_AUTO_INSTALL = "STANDARD_AUTO_INSTALL_REQ"


@check(
    "artifacts-requirements",
    reads="artifacts",
    why="AWS's vLLM image installs it before the engine starts: this changes the engine, and the container "
    "ends if the installation fails.",
    source="aws/model-hosting-container-standards: dependency_manager (STANDARD_AUTO_INSTALL_REQ)",
    remedy=f"Delete the file from the prefix, or set serving.env.{_AUTO_INSTALL}: 'false'.",
    url="https://github.com/aws/model-hosting-container-standards",
)
def artifacts_requirements(fact: Artifacts, draft: Draft) -> Findings:
    """A requirements.txt that AWS's image would install at the start."""
    enabled = draft.spec.serving.env.get(_AUTO_INSTALL, "true").lower() in ("true", "1", "yes", "on")
    if draft.context.local or not enabled or "requirements.txt" not in (fact.target or Prefix("")).keys:
        return
    where = f"model_uri: {fact.target.uri if fact.target else ''}requirements.txt"
    if draft.spec.security.network_isolation:
        yield f"{where} cannot be installed with network isolation: the container ends at its start"
    else:
        yield Finding("warning", f"{where} is installed at each start, from the internet")


@check(
    "artifacts-kms",
    reads="key_rights",
    why="If the role cannot decrypt the weights, the endpoint fails minutes after its start.",
    source="Amazon S3: SSE-KMS; a download needs kms:Decrypt on the object's key",
    remedy="Run `peagle-sm guard install --parameter EndpointKeyArns=<ARN>`, or allow the role kms:Decrypt "
    "on the key. The key's own policy may allow it, too; this check does not read it.",
    severity="warning",
    url="https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html",
)
def artifacts_kms(fact: KeyRights, _: Draft) -> Findings:
    """Weights encrypted with a key that the role's policies do not allow."""
    if fact.rights.denied:
        keys = ", ".join(fact.keys)
        yield f"the weights are encrypted with {keys}; the role may not {fact.rights.denied[0]}"


@check(
    "kms-key",
    reads="key",
    why="CreateEndpoint fails if the volume's key is disabled, deleted, or in another region.",
    source="SageMaker API: CreateEndpointConfig.KmsKeyId; KMS: DescribeKey",
    remedy="Enable the key, or use another one.",
    url="https://docs.aws.amazon.com/kms/latest/APIReference/API_DescribeKey.html",
)
def kms_key(fact: Key, _: Draft) -> Findings:
    """A volume key that cannot be used."""
    if fact.state != "Enabled":
        yield f"security.kms_key_id: {fact.key_id} is {fact.state or 'missing'}"


@check(
    "vpc",
    reads="network",
    why="Each instance needs an IP address in its subnets; without one the endpoint does not start.",
    source="SageMaker API: VpcConfig; EC2: DescribeSubnets",
    remedy="Correct security.vpc, or use subnets with free IP addresses.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_VpcConfig.html",
)
def vpc(fact: Network, draft: Draft) -> Findings:
    """Subnets or security groups that do not exist, or subnets that are full."""
    wanted = draft.spec.security.vpc
    if wanted is None:
        return
    lost = [each for each in wanted.subnet_ids if each not in fact.subnets]
    lost += [each for each in wanted.security_group_ids if each not in fact.security_groups]
    if lost:
        yield f"security.vpc: not found in {draft.region}: {', '.join(lost)}"
    for name, (zone, free) in fact.subnets.items():
        if free < _FREE_ADDRESSES:
            yield f"security.vpc: subnet {name} in {zone} has {free} free addresses"
