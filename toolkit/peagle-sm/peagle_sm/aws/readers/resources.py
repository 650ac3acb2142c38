"""Readers of a deploy's needs: quotas, network, image, weights, key.

Also of its reservation. A draft head in S3 is checked by its manifest, or by its files without a manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import s3_folder, split_uri
from peagle_sm.core.checks.base import (
    Artifacts,
    EcrImage,
    GenerationDefaults,
    Key,
    Network,
    Prefix,
    Quotas,
    Reservation,
)
from peagle_sm.core.checks.image import registry_of
from peagle_sm.core.checks.resources import ALL_INSTANCES, quota_name
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import HeadLook
from peagle_sm.core.heads.reading import CONFIG, MANIFEST, Folder, manifest_faults, parse_manifest, read_json
from peagle_sm.core.plan.resolve import Draft

SERVICE = "sagemaker"
# Endpoints with these statuses have no instances and will get none.
_GONE = frozenset({"Deleting", "Failed"})


def quotas(session: Session, draft: Draft) -> Quotas:
    """Read the quotas of the spec's types, and count the instances of all endpoints.

    Raises:
        CredentialsError: a permission is missing.
    """
    wanted = {quota_name(name): name for name in draft.instance_types}
    values = find_quotas(session, {*wanted, ALL_INSTANCES})
    in_use, own = _in_use(session, draft.spec.name)
    return Quotas(
        granted={wanted[name]: value for name, value in values.items() if name in wanted},
        in_use=in_use,
        own_in_use=own,
        all_granted=values.get(ALL_INSTANCES),
    )


def find_quotas(session: Session, wanted: set[str]) -> dict[str, float]:
    """Return SageMaker's quotas of these names: the applied value, else AWS's default."""
    values: dict[str, float] = {}
    request = {"ServiceCode": SERVICE, "PaginationConfig": {"PageSize": 100}}
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        for quota in session.api("service-quotas").rows(operation, "Quotas", **request):
            if quota["QuotaName"] in wanted - values.keys():
                values[quota["QuotaName"]] = float(quota["Value"])
            if len(values) == len(wanted):
                return values
    return values


def _in_use(session: Session, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Count the instances by type of all endpoints, and of endpoint ``name``."""
    every: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for listed in control.list_endpoints(session):
        if listed.status in _GONE:
            continue
        counts = _instances(session, listed.name)
        every.update(counts)
        if listed.name == name:
            own.update(counts)
    return dict(every), dict(own)


def _instances(session: Session, endpoint: str) -> Counter[str]:
    described = control.describe_endpoint(session, endpoint)
    config = control.describe_endpoint_config(session, described.config_name) if described else None
    counts: Counter[str] = Counter()
    if described is None or config is None:
        return counts
    now = {row["VariantName"]: row for row in described.raw.get("ProductionVariants") or ()}
    for variant in config.raw.get("ProductionVariants") or ():
        pools = variant.get("InstancePools") or [{}]
        kind = variant.get("InstanceType") or pools[0].get("InstanceType")
        shown = now.get(variant["VariantName"], {})
        count = max(shown.get("CurrentInstanceCount", 0), shown.get("DesiredInstanceCount", 0))
        if kind:
            counts[kind] += count or variant.get("InitialInstanceCount", 0)
    return counts


def reservation(session: Session, draft: Draft) -> Reservation:
    """Describe the spec's training plan.

    Raises:
        CredentialsError: sagemaker:DescribeTrainingPlan is missing.
        ServiceFault: the ARN is not a training plan's; others cannot be described.
    """
    arn = draft.spec.placement.capacity_reservation_arn or ""
    if ":training-plan/" not in arn:
        raise ServiceFault(f"{arn} is not the ARN of a training plan; other reservations cannot be described")
    try:
        plan = session.api("sagemaker").describe_training_plan(TrainingPlanName=arn.rpartition("/")[2])
    except NotFound as error:
        return Reservation(arn, problem=error.message)
    rows = plan.get("ReservedCapacitySummaries") or ()
    return Reservation(
        arn=arn,
        status=plan.get("Status", ""),
        ends=plan.get("EndTime"),
        instance_types=tuple(dict.fromkeys(row["InstanceType"] for row in rows if "InstanceType" in row)),
        targets=tuple(plan.get("TargetResources") or ()),
        free=plan.get("AvailableInstanceCount"),
    )


def network(session: Session, draft: Draft) -> Network:
    """Read the spec's subnets and security groups; missing ones are left out.

    Raises:
        CredentialsError: a permission is missing.
    """
    wanted = draft.spec.security.vpc
    if wanted is None:
        return Network()
    # With a filter, missing ids are left out; with an id list, one missing id fails the call.
    subnets = session.api("ec2").describe_subnets(
        Filters=[{"Name": "subnet-id", "Values": wanted.subnet_ids}]
    )
    groups = session.api("ec2").describe_security_groups(
        Filters=[{"Name": "group-id", "Values": wanted.security_group_ids}]
    )
    return Network(
        subnets={
            row["SubnetId"]: (row["AvailabilityZone"], row["AvailableIpAddressCount"])
            for row in subnets["Subnets"]
        },
        security_groups=tuple(row["GroupId"] for row in groups["SecurityGroups"]),
    )


_AT_HOME = "us-east-1"
_LOOKED_AT = 1000
_NO_BUCKET = frozenset({"404", "NoSuchBucket"})
_MEDIA_TYPES = [
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
]


def image(session: Session, draft: Draft) -> EcrImage:
    """Read the image's manifest from the registry, with a pull's permission.

    Raises:
        CredentialsError: ecr:BatchGetImage is denied, by IAM or by the registry's policy.
        ServiceFault: the image is not in ECR, or unknown.
    """
    parts = registry_of(draft.image.uri) if draft.image else None
    if draft.image is None or parts is None:
        raise ServiceFault("the image is not in ECR")
    account, _, rest = parts
    path, _, digest = rest.partition("@")
    repository, _, tag = path.partition(":")
    try:
        answer = session.api("ecr").batch_get_image(
            registryId=account,
            repositoryName=repository,
            imageIds=[{"imageDigest": digest} if digest else {"imageTag": tag or "latest"}],
            acceptedMediaTypes=_MEDIA_TYPES,
        )
    except ServiceFault as error:
        if error.code not in ("RepositoryNotFoundException", "ImageNotFoundException"):
            raise
        return EcrImage(draft.image.uri, False, error.message)
    failures = answer.get("failures") or ()
    reason = ", ".join(f"{row.get('failureCode')}: {row.get('failureReason')}" for row in failures)
    return EcrImage(draft.image.uri, bool(answer.get("images")), reason)


def artifacts(session: Session, draft: Draft) -> Artifacts:
    """List the first objects below the prefixes of target and head.

    Raises:
        CredentialsError: the caller lacks s3:ListBucket; another check covers the role.
    """
    head = draft.head_uri if draft.speculating else None
    return Artifacts(
        target=_prefix(session, draft.model_uri) if draft.model_uri else None,
        head=_prefix(session, head) if head else None,
    )


def _prefix(session: Session, uri: str) -> Prefix:
    bucket, prefix = split_uri(uri)
    try:
        answer = session.api("s3").list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=_LOOKED_AT)
    except (ServiceFault, NotFound) as error:
        if getattr(error, "code", "404") not in _NO_BUCKET:
            raise
        return Prefix(uri, problem=f"the bucket {bucket} does not exist")
    rows = answer.get("Contents") or []
    return Prefix(
        uri=uri,
        keys={row["Key"].removeprefix(prefix): row["Size"] for row in rows},
        more=bool(answer.get("IsTruncated")),
        region=_region(answer, session),
    )


def kms_keys(session: Session, draft: Draft) -> tuple[str, ...]:
    """Return the ARNs of the KMS keys of the first objects of target and head.

    Raises:
        CredentialsError: s3:GetObject is missing.
    """
    head = draft.head_uri if draft.speculating else None
    keys: list[str] = []
    for uri in filter(None, (draft.model_uri, head)):
        bucket, _ = split_uri(uri)
        rows = (
            session.api("s3")
            .list_objects_v2(Bucket=bucket, Prefix=split_uri(uri)[1], MaxKeys=1)
            .get("Contents")
            or []
        )
        for row in rows:
            answer = session.api("s3").head_object(Bucket=bucket, Key=row["Key"])
            if str(answer.get("ServerSideEncryption", "")).startswith("aws:kms"):
                keys.append(str(answer.get("SSEKMSKeyId", "")))
    return tuple(dict.fromkeys(filter(None, keys)))


def _region(answer: Any, session: Session) -> str | None:
    """Return the bucket's region from an answer's header, also after a redirect."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    region = headers.get("x-amz-bucket-region")
    return str(region) if region and not session.is_local else None


def key(session: Session, draft: Draft) -> Key:
    """Read the volume's KMS key."""
    key_id = draft.spec.security.kms_key_id or ""
    try:
        answer = session.api("kms").describe_key(KeyId=key_id)
    except NotFound:
        return Key(key_id)
    except ServiceFault as error:
        if error.code != "NotFoundException":
            raise
        return Key(key_id)
    return Key(key_id, str(answer["KeyMetadata"].get("KeyState", "")))


def head(session: Session, draft: Draft) -> HeadLook | None:
    """Check the head that the spec names; None if it names none.

    A head of the catalogue, of JumpStart or of the local server is not checked.

    Raises:
        NotFound: the prefix has no files.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    uri = draft.spec.head_uri
    if uri is None or not draft.mode_facts.has_weights:
        return None
    root = draft.model_uri if draft.head_beside_target and draft.model_uri else uri
    folder = s3_folder(session, root)
    if MANIFEST in folder.sizes:
        try:
            manifest = parse_manifest(folder.text(MANIFEST) or b"")
        except ValueError:
            manifest = None  # another program's file of that name: the head's own files count
        if manifest is not None:
            faults = manifest_faults(
                manifest,
                folder.sizes,
                model=draft.spec.model_name,
                mode=draft.mode,
                num_speculative_tokens=draft.num_speculative_tokens,
            )
            facts = manifest.head_facts
            context, vllm = (facts.context, facts.vllm) if facts else (None, None)
            return HeadLook(uri, "manifest", tuple(faults), context, vllm)
    head = folder if root == uri else s3_folder(session, uri)
    report = inspect_head(
        head,
        target=_target(session, draft, folder if root != uri else None),
        mode=draft.mode,
        num_speculative_tokens=draft.num_speculative_tokens,
        trained_k=draft.head.trained_depth if draft.head else None,
        tensor_parallel_size=draft.spec.serving.tensor_parallel_size,
    )
    # The licence matters where a head is staged. The context is compared with the endpoint's own.
    elsewhere = ("licence", "context")
    own_faults = tuple(fault for fault in report.faults if fault.check not in elsewhere)
    return HeadLook(uri, "files", own_faults, report.context, report.vllm)


def generation(session: Session, draft: Draft) -> GenerationDefaults:
    """Read the generation defaults beside the spec's own weights.

    Raises:
        NotFound: the prefix has no files.
        CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    name, uri = "generation_config.json", draft.spec.model_uri or ""
    try:
        text = s3_folder(session, uri).text(name)
        content = None if text is None else read_json(text, name)
    except ValueError:
        content = None  # vLLM reports it
    return GenerationDefaults(f"{uri}{name}", content if isinstance(content, Mapping) else {})


def _target(session: Session, draft: Draft, folder: Folder | None) -> Mapping[str, Any] | None:
    if draft.spec.model_uri is None:
        return None
    try:
        text = (folder or s3_folder(session, draft.spec.model_uri)).text(CONFIG)
        config = None if text is None else read_json(text, CONFIG)
    except (PeagleError, ValueError):
        return None  # another check reports the target's faults
    return config if isinstance(config, dict) else None
