"""Cases of the checks in `peagle_sm.core.checks.resources`: quotas, artifacts, image, key, VPC."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from peagle_sm.core.checks.base import (
    Artifacts,
    EcrImage,
    Key,
    KeyRights,
    Network,
    Prefix,
    Quotas,
    Reservation,
    Rights,
)
from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, GPT, NOW, STACK

_PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/one"
_RESERVED = f"placement: {{capacity_reservation_arn: '{_PLAN}'}}"
_TYPE = "ml.g7e.2xlarge"
_TWO = "placement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_LIVE = Reservation(_PLAN, "Active", NOW + timedelta(days=9), (_TYPE,), ("endpoint",), 1)
_FILES = {"config.json": 1000, "model.safetensors": 10**9}
_TARGET = Prefix("s3://bucket/target/", _FILES, region="us-east-1")
_HEAD = Prefix("s3://bucket/head/", _FILES, region="us-east-1")
_BOTH = Artifacts(_TARGET, _HEAD)
_NEEDS = Artifacts(replace(_TARGET, keys={**_FILES, "requirements.txt": 20}))
_IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.18.0"
_VPC = "security: {vpc: {subnet_ids: [subnet-1], security_group_ids: [sg-1]}}"
_KEY = "security: {kms_key_id: alias/mine}"

CASES = [
    error(
        "quota-instances", "'ml.g7e.2xlarge for endpoint usage' is 0; needed: 1", GPT, fact=Quotas({_TYPE: 0})
    ),
    error(
        "quota-instances",
        "is 2, 2 in use by other endpoints; needed: 1",
        GPT,
        fact=Quotas({_TYPE: 2}, {_TYPE: 2}),
    ),
    error("quota-instances", "this account has no quota", GPT, fact=Quotas({})),
    error("quota-instances", "needed: 2", GPT, context=STACK, fact=Quotas({_TYPE: 1})),
    warning("quota-instances", "is 0; needed: 1", GPT, _TWO, fact=Quotas({_TYPE: 0, "ml.g7e.4xlarge": 1})),
    Case("quota-instances", GPT, fact=Quotas({_TYPE: 2}, {_TYPE: 2}, {_TYPE: 1})),
    Case("quota-instances", GPT, "update: off-update-on", STACK, fact=Quotas({_TYPE: 1})),
    Case("quota-instances", GPT, _RESERVED, fact=Quotas({_TYPE: 0})),
    error(
        "quota-all-instances",
        "is 3, 3 in use by other endpoints; needed: 1",
        GPT,
        fact=Quotas({}, {"ml.m5.large": 3}, all_granted=3),
    ),
    Case("quota-all-instances", GPT, fact=Quotas({}, {"ml.m5.large": 3}, {"ml.m5.large": 1}, 3)),
    error("reservation", "gone", GPT, _RESERVED, fact=Reservation(_PLAN, problem="gone")),
    error("reservation", "plan is Expired", GPT, _RESERVED, fact=Reservation(_PLAN, "Expired")),
    error(
        "reservation",
        "is for training-job",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", targets=("training-job",)),
    ),
    error(
        "reservation",
        "needed: ml.g7e.2xlarge",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", instance_types=("ml.p5.48xlarge",)),
    ),
    error("reservation", "0 free", GPT, _RESERVED, fact=Reservation(_PLAN, "Active", free=0)),
    warning(
        "reservation",
        "before the lifetime ends",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", NOW + timedelta(hours=7)),
    ),
    Case("reservation", GPT, _RESERVED, fact=_LIVE),
    error(
        "image-exists", "does not exist: ImageNotFound", GPT, fact=EcrImage(_IMAGE, False, "ImageNotFound")
    ),
    Case("image-exists", GPT, fact=EcrImage(_IMAGE, True)),
    error(
        "artifacts-readable",
        "model_uri: s3://bucket/target/: NoSuchBucket",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", problem="NoSuchBucket"), _HEAD),
    ),
    error(
        "artifacts-readable",
        "head_uri: no objects exist below s3://bucket/head/",
        CONTAINER,
        fact=Artifacts(_TARGET, Prefix("s3://bucket/head/")),
    ),
    Case("artifacts-readable", CONTAINER, fact=_BOTH),
    error(
        "artifacts-region",
        "is in eu-west-1; needed: us-east-1",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", _FILES, region="eu-west-1")),
    ),
    Case("artifacts-region", CONTAINER, fact=_BOTH),
    error(
        "artifacts-files",
        "has no config.json",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {"model.safetensors": 1})),
    ),
    error(
        "artifacts-files",
        "has no *.safetensors",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {"config.json": 1, "x.bin": 1})),
    ),
    warning(
        "artifacts-files",
        "files that can run code: modeling.py",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {**_FILES, "modeling.py": 1})),
    ),
    Case("artifacts-files", CONTAINER, fact=_BOTH),
    error(
        "artifacts-markers",
        "`aws s3 rm s3://bucket/target/`; `aws s3 rm s3://bucket/target/old/`",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {**_FILES, "": 0, "old/": 0})),
    ),
    Case("artifacts-markers", CONTAINER, fact=_BOTH),
    error("artifacts-requirements", "cannot be installed with network isolation", CONTAINER, fact=_NEEDS),
    warning(
        "artifacts-requirements",
        "is installed at each start",
        CONTAINER,
        "security: {network_isolation: false}",
        fact=_NEEDS,
    ),
    Case(
        "artifacts-requirements",
        CONTAINER,
        "serving: {env: {STANDARD_AUTO_INSTALL_REQ: 'false'}}",
        fact=_NEEDS,
    ),
    warning(
        "artifacts-kms",
        "encrypted with arn:k; the role may not kms:Decrypt on arn:k",
        CONTAINER,
        fact=KeyRights(("arn:k",), Rights("r", (), ("kms:Decrypt on arn:k",))),
    ),
    Case("artifacts-kms", CONTAINER, fact=KeyRights((), Rights("r"))),
    error("kms-key", "is missing", CONTAINER, _KEY, fact=Key("alias/mine")),
    error("kms-key", "is Disabled", CONTAINER, _KEY, fact=Key("alias/mine", "Disabled")),
    Case("kms-key", CONTAINER, _KEY, fact=Key("alias/mine", "Enabled")),
    error("vpc", "not found in us-east-1: subnet-1, sg-1", CONTAINER, _VPC, fact=Network()),
    error(
        "vpc",
        "subnet-1 in us-east-1a has 0 free addresses",
        CONTAINER,
        _VPC,
        fact=Network({"subnet-1": ("us-east-1a", 0)}, ("sg-1",)),
    ),
    Case("vpc", CONTAINER, _VPC, fact=Network({"subnet-1": ("us-east-1a", 200)}, ("sg-1",))),
]
