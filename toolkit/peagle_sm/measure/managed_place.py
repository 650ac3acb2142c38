"""Where a managed job works: the role it takes, the bucket it writes to, the tokenizer it counts with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import buckets, objects
from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.managed_spec import CHANNELS, TOKENIZER

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


@dataclass(frozen=True)
class Place:
    """``tokenizer`` is what the job is given; ``tokenizer_files`` (a directory) is uploaded for it."""

    role_arn: str
    s3: str
    tokenizer: str
    tokenizer_files: Path | None = None

    def channels(self, session: Session, base: str) -> dict[str, str]:
        """Upload what else the job needs below ``base``; S3 URIs by channel."""
        if self.tokenizer_files is None:
            return {}
        prefix = f"{base}/{TOKENIZER}/"
        for name in _TOKENIZER_FILES:
            file = self.tokenizer_files / name
            if file.is_file():
                objects.upload(session, f"{prefix}{name}", file.read_bytes())
        return {TOKENIZER: prefix}


def find_place(
    session: Session,
    endpoint: str,
    *,
    stand_in_weights: bool,
    role_arn: str | None = None,
    s3: str | None = None,
    tokenizer: str | None = None,
) -> Place:
    """Settle role, bucket and tokenizer; what is not given comes from the endpoint and the account.

    Args:
        session: where the endpoint is.
        endpoint: its name.
        stand_in_weights: whether it serves the small weights that ship with peagle-sm.
        role_arn: a role that SageMaker may assume; None takes the one that the endpoint's model runs under.
        s3: ``s3://BUCKET/PREFIX``; None takes the account's default bucket for SageMaker.
        tokenizer: a Hugging Face id, or a directory with its files; None takes the target model's.

    Raises:
        SpecError: one of them is neither given nor known.
    """
    if s3 is not None:
        objects.split_uri(s3)
    model = _model(session, endpoint)
    name, files = _tokenizer(tokenizer, stand_in_weights, model)
    return Place(role_arn or _role(session, endpoint, model), s3 or _default_bucket(session), name, files)


def _model(session: Session, endpoint: str) -> dict[str, Any]:
    """What DescribeModel says of the endpoint's model; empty where it has none of its own."""
    facts = control.describe_endpoint(session, endpoint)
    config = control.describe_endpoint_config(session, facts.config_name) if facts else None
    if config is None or config.model_name is None:
        return {} if config is None else {"ExecutionRoleArn": config.raw.get("ExecutionRoleArn")}
    model = control.describe_model(session, config.model_name)
    return dict(model.raw) if model else {}


def _role(session: Session, endpoint: str, model: dict[str, Any]) -> str:
    role = (session.local.role_arn if session.local else None) or model.get("ExecutionRoleArn")
    if not role:
        raise SpecError(
            f"the role of endpoint {endpoint!r} is not known, and an AI benchmark job needs one",
            next_step="give --role-arn: a role that sagemaker.amazonaws.com may assume, that may invoke the "
            "endpoint and write to the bucket",
        )
    return str(role)


def _default_bucket(session: Session) -> str:
    """The bucket that SageMaker's SDK, too, takes by default; made where it is missing."""
    bucket = f"sagemaker-{session.region}-{session.account()}"
    if not buckets.exists(session, bucket):
        buckets.create(session, bucket)
    return f"s3://{bucket}/peagle-sm/benchmarks"


def _tokenizer(given: str | None, stand_in: bool, model: dict[str, Any]) -> tuple[str, Path | None]:
    """What the specification says, and the directory to upload, if any."""
    if given is None:
        if stand_in:
            return f"{CHANNELS}/{TOKENIZER}", stand_in_weights() / "target"
        found = _hub_id(model)
        if found is None:
            raise SpecError(
                "the tokenizer of the endpoint's model is not known, and AIPerf counts tokens with one",
                next_step="give --tokenizer: a Hugging Face id (org/model), or a directory with its files",
            )
        return found, None
    directory = Path(given)
    if not directory.is_dir():
        return given, None
    if not (directory / "tokenizer_config.json").is_file():
        raise SpecError(
            f"{given} holds no tokenizer_config.json", next_step="give a directory with a tokenizer's files"
        )
    return f"{CHANNELS}/{TOKENIZER}", directory


def _hub_id(model: dict[str, Any]) -> str | None:
    """The target's id on Hugging Face, from the container's environment or the catalogue."""
    container = model.get("PrimaryContainer") or {}
    environment = container.get("Environment") or {}
    for name in ("SM_VLLM_MODEL", "HF_MODEL_ID"):
        value = str(environment.get(name, ""))
        if value.count("/") == 1 and not value.startswith("/"):
            return value
    text = str(container.get("ModelDataSource") or "").lower()
    for entry in load_catalog().models.values():
        if entry.hub_id and entry.jumpstart_model_id and f"/{entry.jumpstart_model_id}/" in text:
            return entry.hub_id
    return None
