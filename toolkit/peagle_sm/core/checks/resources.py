"""Checks on what a deploy needs in AWS: quotas, capacity, image, weights, keys.

They judge facts that were read from AWS. The network and the prices are among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from peagle_sm.core.checks.base import (
    Artifacts,
    Check,
    EcrImage,
    Key,
    KeyRights,
    Network,
    Note,
    Price,
    Quotas,
    Reservation,
    preflight_check,
)
from peagle_sm.core.checks.image import is_aws_own
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.resolve import Draft

_QUOTAS = "https://docs.aws.amazon.com/general/latest/gr/sagemaker.html"
_S3_SOURCE = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3ModelDataSource.html"
ALL_INSTANCES = "Number of instances across active endpoints"
_CODE = (".py", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_FREE_ADDRESSES = 2
_PRICE_OFF = 0.01


def quota_name(instance_type: str) -> str:
    """Return the name under which Service Quotas lists an instance type for endpoints."""
    return f"{instance_type} for endpoint usage"


def instances_needed(draft: Draft) -> int:
    """Return the most instances at once: scaling's bound, and an update's second fleet where there is one."""
    most = max(draft.spec.instance_bounds[1], draft.spec.placement.instance_count)
    return most + draft.spec.placement.instance_count if _second_fleet(draft) else most


def _second_fleet(draft: Draft) -> bool:
    return draft.context.stack is not None and draft.spec.update == "in-place"


@preflight_check(
    "quota-instances",
    reads="quotas",
    why="CreateEndpoint is refused (ResourceLimitExceeded). New accounts have 0 of every GPU type, and an "
    "increase can take days.",
    source="Service Quotas: `<type> for endpoint usage`; amazon-sagemaker-examples issue 593 (0 at first)",
    remedy="Ask for more: Service Quotas console, Amazon SageMaker, the name that is given here.",
    url=_QUOTAS,
)
def quota_instances(fact: Quotas, draft: Draft | None) -> Iterator[Note]:
    """A quota for the instance type that is too small, the instances of other endpoints counted."""
    if draft is None or draft.spec.placement.capacity_reservation_arn is not None:
        return
    need = instances_needed(draft)
    short: list[str] = []
    for name in draft.instance_types:
        granted = fact.granted.get(name)
        used = fact.in_use.get(name, 0) - fact.own_in_use.get(name, 0)
        if granted is None:
            short.append(
                f"{quota_name(name)!r} is not a quota of this account: is the type in {draft.region}?"
            )
        elif granted - used < need:
            others = f", {used} in use by other endpoints" if used else ""
            short.append(f"{quota_name(name)!r} is {granted:g}{others}; needed: {need}")
    left = len(draft.instance_types) - len(short)
    for message in short:
        yield Note("warning" if left else "error", message)


@preflight_check(
    "quota-all-instances",
    reads="quotas",
    why="CreateEndpoint is refused (ResourceLimitExceeded), whatever the quota of the type says.",
    source=f"Service Quotas: `{ALL_INSTANCES}`",
    remedy="Delete endpoints that nobody uses (`peagle-sm list --all`), or ask for more.",
    url=_QUOTAS,
)
def quota_all_instances(fact: Quotas, draft: Draft | None) -> Iterator[Note]:
    """Too many instances in all endpoints together."""
    if draft is None or fact.all_granted is None:
        return
    used = sum(fact.in_use.values()) - sum(fact.own_in_use.values())
    if fact.all_granted - used < instances_needed(draft):
        yield Note(
            "error",
            f"{ALL_INSTANCES!r} is {fact.all_granted:g}, {used} in use by other endpoints; "
            f"needed: {instances_needed(draft)}",
        )


@preflight_check(
    "reservation",
    reads="reservation",
    why="With capacity-reservations-only an endpoint without live capacity never starts, and dies with it.",
    source="SageMaker API: DescribeTrainingPlan; CapacityReservationConfig",
    remedy="Name a plan that is Active, is for endpoints, has the type, and outlives max_lifetime_hours.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingPlan.html",
)
def reservation(fact: Reservation, draft: Draft | None) -> Iterator[Note]:
    """A training plan that cannot carry the endpoint."""
    if draft is None or draft.spec.placement.capacity_reservation_arn is None:
        return
    if fact.problem is not None:
        yield Note("error", f"placement.capacity_reservation_arn: {fact.problem}")
        return
    if fact.status != "Active":
        yield Note("error", f"the training plan is {fact.status or 'without a status'}; needed: Active")
    if fact.targets and "endpoint" not in fact.targets:
        yield Note("error", f"the training plan is for {', '.join(fact.targets)}; needed: endpoint")
    for name in draft.instance_types:
        if fact.instance_types and name not in fact.instance_types:
            yield Note("error", f"the training plan has {', '.join(fact.instance_types)}; needed: {name}")
    if fact.free is not None and fact.free < instances_needed(draft):
        yield Note("error", f"the training plan has {fact.free} free; needed: {instances_needed(draft)}")
    hours = timedelta(hours=draft.spec.lifecycle.max_lifetime_hours)
    now = draft.context.now
    if fact.ends is not None and now is not None and now + hours > fact.ends:
        yield Note("warning", f"the training plan ends {fact.ends:%Y-%m-%d %H:%M}, before the lifetime does")


@preflight_check(
    "image-exists",
    reads="image",
    why="A host that cannot pull its image sticks in Creating, billed, and fails without a log line.",
    source="Amazon ECR: BatchGetImage; aws/deep-learning-containers issue 5657",
    remedy="Push the image, correct its tag, or let this account and sagemaker.amazonaws.com pull it.",
    url="https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_BatchGetImage.html",
)
def image_exists(fact: EcrImage, draft: Draft | None) -> Iterator[Note]:
    """An image that its registry does not have."""
    if not fact.exists:
        aws = draft is not None and is_aws_own(draft)
        yield Note(
            "error",
            f"image: {fact.uri} is not there: {fact.reason or 'not found'}",
            "Take a tag of the releases of aws/deep-learning-containers." if aws else "",
        )


@preflight_check(
    "artifacts-readable",
    reads="artifacts",
    why="CreateModel refuses a prefix without objects; one that cannot be read fails once billed.",
    source="SageMaker API: S3ModelDataSource; aws/amazon-sagemaker-examples issue 4479",
    remedy="Correct the address, or upload the files.",
    url=_S3_SOURCE,
)
def artifacts_readable(fact: Artifacts, _: Draft | None) -> Iterator[Note]:
    """A prefix of target or head that is empty, or whose bucket is not there."""
    for field, prefix in fact.all:
        if prefix.problem is not None:
            yield Note("error", f"{field}: {prefix.uri}: {prefix.problem}")
        elif not prefix.keys:
            yield Note("error", f"{field}: there is nothing below {prefix.uri}")


@preflight_check(
    "artifacts-region",
    reads="artifacts",
    why="SageMaker loads weights from its own region alone; from another it is refused or slow, and billed.",
    source="SageMaker API: CreateModel (the bucket must be in the endpoint's region)",
    remedy="Copy the files to a bucket in the endpoint's region.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ContainerDefinition.html",
)
def artifacts_region(fact: Artifacts, draft: Draft | None) -> Iterator[Note]:
    """A bucket in another region than the endpoint."""
    for field, prefix in fact.all:
        if draft is not None and prefix.region not in (None, draft.region):
            yield Note("error", f"{field}: {prefix.uri} is in {prefix.region}; needed: {draft.region}")


@preflight_check(
    "artifacts-files",
    reads="artifacts",
    why="vLLM does not start without config.json, and pickles or Python files run whatever they hold.",
    source="Hugging Face: safetensors; vLLM: trust_remote_code",
    remedy="Upload config.json and safetensors only; leave .bin, .pt and .py files out.",
    url="https://huggingface.co/docs/safetensors/index",
)
def artifacts_files(fact: Artifacts, draft: Draft | None) -> Iterator[Note]:
    """A prefix without config.json or weights, or with files that are code."""
    beside = draft.head_beside_target if draft is not None else None
    for field, prefix in fact.all:
        if prefix.problem is not None or not prefix.keys:
            continue
        names = [key for key in prefix.keys if "/" not in key]
        for wanted in ("config.json", ".safetensors"):
            if not prefix.more and not any(name.endswith(wanted) for name in names):
                what = wanted if wanted[0] != "." else f"*{wanted}"
                yield Note("error", f"{field}: there is no {what} in {prefix.uri}")
        code = [
            key
            for key in prefix.keys
            if key.endswith(_CODE) and not (beside and field == "model_uri" and key.startswith(f"{beside}/"))
        ]
        if code:
            told = ", ".join(code[:3]) + (" …" if len(code) > 3 else "")
            yield Note("warning", f"{field}: {prefix.uri} has files that can run code: {told}")


@preflight_check(
    "artifacts-kms",
    reads="key_rights",
    why="Weights that the role cannot decrypt fail the endpoint minutes after its instance was started.",
    source="Amazon S3: SSE-KMS; a download needs kms:Decrypt on the object's key",
    remedy="Run `peagle-sm guard install --endpoint-key <ARN>`, or allow the role kms:Decrypt on the key; "
    "a key's own policy may allow it as well, and is not looked at here.",
    severity="warning",
    url="https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html",
)
def artifacts_kms(fact: KeyRights, _: Draft | None) -> Iterator[Note]:
    """Weights encrypted by a key that the role's own policies do not let it use."""
    if fact.rights.denied:
        keys = ", ".join(fact.keys)
        yield Note(
            "warning", f"the weights are encrypted by {keys}; the role may not {fact.rights.denied[0]}"
        )


@preflight_check(
    "kms-key",
    reads="key",
    why="CreateEndpoint fails where the volume's key is disabled, gone, or in another region.",
    source="SageMaker API: CreateEndpointConfig.KmsKeyId; KMS: DescribeKey",
    remedy="Enable the key, or name another.",
    url="https://docs.aws.amazon.com/kms/latest/APIReference/API_DescribeKey.html",
)
def kms_key(fact: Key, _: Draft | None) -> Iterator[Note]:
    """A key for the volume that cannot be used."""
    if fact.state != "Enabled":
        yield Note("error", f"security.kms_key_id: {fact.key_id} is {fact.state or 'not there'}")


@preflight_check(
    "vpc",
    reads="network",
    why="An endpoint gets an address for each instance in its subnets; without one it does not start.",
    source="SageMaker API: VpcConfig; EC2: DescribeSubnets",
    remedy="Correct security.vpc, or take subnets with free addresses.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_VpcConfig.html",
)
def vpc(fact: Network, draft: Draft | None) -> Iterator[Note]:
    """Subnets or security groups that are not there, or subnets that are full."""
    wanted = draft.spec.security.vpc if draft is not None else None
    if wanted is None or draft is None:
        return
    lost = [each for each in wanted.subnet_ids if each not in fact.subnets]
    lost += [each for each in wanted.security_group_ids if each not in fact.security_groups]
    if lost:
        yield Note("error", f"security.vpc: not found in {draft.region}: {', '.join(lost)}")
    for name, (zone, free) in fact.subnets.items():
        if free < _FREE_ADDRESSES:
            yield Note("error", f"security.vpc: subnet {name} in {zone} has {free} free addresses")


@preflight_check(
    "price-listed",
    reads="prices",
    why="A type without a hosting price cannot be had in the region; a stale price misleads the budget.",
    source="AWS Price List API: AmazonSageMaker, usage type Host:<instance>",
    remedy="Choose a type or region that has one; raise lifecycle.budget_usd where the price went up.",
    severity="warning",
    url="https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html",
)
def price_listed(fact: tuple[Price, ...], draft: Draft | None) -> Iterator[Note]:
    """A type that AWS lists no hosting price for, or a price that is not the plan's."""
    if draft is None:
        return
    for price in fact:
        known = draft.catalog.price(price.instance_type, draft.region)
        if price.usd_per_hour is None:
            yield Note("warning", f"AWS lists no hosting price for {price.instance_type} in {draft.region}")
        elif known is None or abs(known.usd_per_hour - price.usd_per_hour) > _PRICE_OFF:
            counted = f"the plan counts {known.usd_per_hour:.2f}" if known else "the plan knows none"
            yield Note(
                "warning",
                f"{price.instance_type} is {price.usd_per_hour:.2f} USD/hour ({price.date}); {counted}"
                f"{_over_budget(draft, price.usd_per_hour)}",
            )


def _over_budget(draft: Draft, hourly: float) -> str:
    budget = draft.spec.lifecycle.budget_usd
    most = hourly * draft.spec.instance_bounds[1] * draft.spec.lifecycle.max_lifetime_hours
    if budget is None or most <= budget or cost_of(draft).max_usd == most:
        return ""
    return f"; the lifetime can cost {most:.2f} USD, and budget_usd is {budget:.2f}"


CHECKS: tuple[Check, ...] = (
    quota_instances,
    quota_all_instances,
    reservation,
    image_exists,
    artifacts_readable,
    artifacts_region,
    artifacts_files,
    artifacts_kms,
    kms_key,
    vpc,
    price_listed,
)
