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
from tests.core.checks.cases import Case
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
    Case(
        "quota-instances",
        GPT,
        fact=Quotas({_TYPE: 0}),
        severity="error",
        text="'ml.g7e.2xlarge for endpoint usage' is 0; needed: 1",
    ),
    Case(
        "quota-instances",
        GPT,
        fact=Quotas({_TYPE: 2}, {_TYPE: 2}),
        severity="error",
        text="is 2, 2 in use by other endpoints; needed: 1",
    ),
    Case("quota-instances", GPT, fact=Quotas({}), severity="error", text="this account has no quota"),
    Case("quota-instances", GPT, context=STACK, fact=Quotas({_TYPE: 1}), severity="error", text="needed: 2"),
    Case(
        "quota-instances",
        GPT,
        _TWO,
        fact=Quotas({_TYPE: 0, "ml.g7e.4xlarge": 1}),
        severity="warning",
        text="is 0; needed: 1",
    ),
    Case("quota-instances", GPT, fact=Quotas({_TYPE: 2}, {_TYPE: 2}, {_TYPE: 1})),
    Case("quota-instances", GPT, "update: off-update-on", STACK, fact=Quotas({_TYPE: 1})),
    Case("quota-instances", GPT, _RESERVED, fact=Quotas({_TYPE: 0})),
    Case(
        "quota-all-instances",
        GPT,
        fact=Quotas({}, {"ml.m5.large": 3}, all_granted=3),
        severity="error",
        text="is 3, 3 in use by other endpoints; needed: 1",
    ),
    Case("quota-all-instances", GPT, fact=Quotas({}, {"ml.m5.large": 3}, {"ml.m5.large": 1}, 3)),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, problem="gone"),
        severity="error",
        text="gone",
    ),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Expired"),
        severity="error",
        text="plan is Expired",
    ),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", targets=("training-job",)),
        severity="error",
        text="is for training-job",
    ),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", instance_types=("ml.p5.48xlarge",)),
        severity="error",
        text="needed: ml.g7e.2xlarge",
    ),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", free=0),
        severity="error",
        text="0 free",
    ),
    Case(
        "reservation",
        GPT,
        _RESERVED,
        fact=Reservation(_PLAN, "Active", NOW + timedelta(hours=7)),
        severity="warning",
        text="before the lifetime ends",
    ),
    Case("reservation", GPT, _RESERVED, fact=_LIVE),
    Case(
        "image-exists",
        GPT,
        fact=EcrImage(_IMAGE, False, "ImageNotFound"),
        severity="error",
        text="does not exist: ImageNotFound",
    ),
    Case("image-exists", GPT, fact=EcrImage(_IMAGE, True)),
    Case(
        "artifacts-readable",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", problem="NoSuchBucket"), _HEAD),
        severity="error",
        text="model_uri: s3://bucket/target/: NoSuchBucket",
    ),
    Case(
        "artifacts-readable",
        CONTAINER,
        fact=Artifacts(_TARGET, Prefix("s3://bucket/head/")),
        severity="error",
        text="head_uri: no objects exist below s3://bucket/head/",
    ),
    Case("artifacts-readable", CONTAINER, fact=_BOTH),
    Case(
        "artifacts-region",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", _FILES, region="eu-west-1")),
        severity="error",
        text="is in eu-west-1; needed: us-east-1",
    ),
    Case("artifacts-region", CONTAINER, fact=_BOTH),
    Case(
        "artifacts-files",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {"model.safetensors": 1})),
        severity="error",
        text="has no config.json",
    ),
    Case(
        "artifacts-files",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {"config.json": 1, "x.bin": 1})),
        severity="error",
        text="has no *.safetensors",
    ),
    Case(
        "artifacts-files",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {**_FILES, "modeling.py": 1})),
        severity="warning",
        text="files that can run code: modeling.py",
    ),
    Case("artifacts-files", CONTAINER, fact=_BOTH),
    Case(
        "artifacts-markers",
        CONTAINER,
        fact=Artifacts(Prefix("s3://bucket/target/", {**_FILES, "": 0, "old/": 0})),
        severity="error",
        text="`aws s3 rm s3://bucket/target/`; `aws s3 rm s3://bucket/target/old/`",
    ),
    Case("artifacts-markers", CONTAINER, fact=_BOTH),
    Case(
        "artifacts-requirements",
        CONTAINER,
        fact=_NEEDS,
        severity="error",
        text="cannot be installed with network isolation",
    ),
    Case(
        "artifacts-requirements",
        CONTAINER,
        "security: {network_isolation: false}",
        fact=_NEEDS,
        severity="warning",
        text="is installed at each start",
    ),
    Case(
        "artifacts-requirements",
        CONTAINER,
        "serving: {env: {STANDARD_AUTO_INSTALL_REQ: 'false'}}",
        fact=_NEEDS,
    ),
    Case(
        "artifacts-kms",
        CONTAINER,
        fact=KeyRights(("arn:k",), Rights("r", (), ("kms:Decrypt on arn:k",))),
        severity="warning",
        text="encrypted with arn:k; the role may not kms:Decrypt on arn:k",
    ),
    Case("artifacts-kms", CONTAINER, fact=KeyRights((), Rights("r"))),
    Case("kms-key", CONTAINER, _KEY, fact=Key("alias/mine"), severity="error", text="is missing"),
    Case(
        "kms-key",
        CONTAINER,
        _KEY,
        fact=Key("alias/mine", "Disabled"),
        severity="error",
        text="is Disabled",
    ),
    Case("kms-key", CONTAINER, _KEY, fact=Key("alias/mine", "Enabled")),
    Case(
        "vpc",
        CONTAINER,
        _VPC,
        fact=Network(),
        severity="error",
        text="not found in us-east-1: subnet-1, sg-1",
    ),
    Case(
        "vpc",
        CONTAINER,
        _VPC,
        fact=Network({"subnet-1": ("us-east-1a", 0)}, ("sg-1",)),
        severity="error",
        text="subnet-1 in us-east-1a has 0 free addresses",
    ),
    Case("vpc", CONTAINER, _VPC, fact=Network({"subnet-1": ("us-east-1a", 200)}, ("sg-1",))),
]
