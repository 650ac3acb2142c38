"""EndpointSpec: the one description of an endpoint, from which YAML, JSON schema and CLI help come."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from peagle_sm.core.errors import SpecError
from peagle_sm.core.jumpstart.lock import Lock, Place, locks_beside
from peagle_sm.core.spec.hours import parse_hours
from peagle_sm.core.spec.validation import UniqueKeys, explain, show, with_lines

Mode = Literal["none", "eagle3", "p-eagle"]
MODES: tuple[Mode, ...] = get_args(Mode)
Source = Literal["jumpstart", "container"]
Idle = Literal["turn-off", "scale-to-zero"]
Update = Literal["in-place", "off-update-on"]

# AWS states `[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}` and, beside it, at most 63 characters; this is both.
ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")
_S3_URI = r"^s3://[^/]+/.+$"
_ROLE_ARN = r"^arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+$"


def _as_environment_text(value: Any) -> Any:
    """YAML reads `true` and `8192` as a bool and a number; the environment only has text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


EnvironmentText = Annotated[str, BeforeValidator(_as_environment_text)]
EnvironmentName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=1024)]
S3Prefix = Annotated[str, Field(pattern=_S3_URI, max_length=1024)]
_NetworkId = Annotated[str, Field(pattern=r"^[-0-9a-zA-Z]+$", max_length=32)]
RoleArn = Annotated[str, Field(pattern=_ROLE_ARN, max_length=2048)]


def _allowed_in_tag(char: str) -> bool:
    return char in "_.:/=+-@" or unicodedata.category(char)[0] in "LZN"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SpeculationSpec(_Part):
    """How draft tokens are proposed."""

    mode: Mode = Field(default="p-eagle", description="none, eagle3 (K draft passes) or p-eagle (one pass).")
    num_speculative_tokens: int | None = Field(
        default=None, ge=0, description="Tokens proposed per step (K); left out, the catalogue's figure."
    )
    draft_head: str | None = Field(
        default=None,
        min_length=1,
        description="Catalogue id of the draft head, or a name for the one at head_uri.",
    )

    @model_validator(mode="after")
    def _k_fits_the_mode(self) -> Self:
        if self.mode != "none" and self.num_speculative_tokens == 0:
            raise ValueError(
                f"num_speculative_tokens: found 0 with mode {self.mode!r}; allowed: 1 or more "
                "(0 proposes nothing; mode none is how speculation is turned off)"
            )
        return self


class ServingSpec(_Part):
    """How the engine is run."""

    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that one replica is split over.")
    data_parallel_size: int = Field(default=1, ge=1, description="Replicas on one instance.")
    max_model_len: int | None = Field(
        default=None, ge=1, description="Longest context in tokens; left out, the catalogue's figure."
    )
    env: dict[EnvironmentName, EnvironmentText] = Field(
        default_factory=dict, description="Further environment, for example SM_VLLM_GPU_MEMORY_UTILIZATION."
    )


class PlacementSpec(_Part):
    """Where the endpoint runs."""

    region: str | None = Field(
        default=None, pattern=r"^[a-z]{2,}(-[a-z]+)+-\d+$", description="AWS region; left out, the session's."
    )
    instance_types: list[str] = Field(
        default_factory=list, max_length=5, description="In order of preference; left out, the catalogue's."
    )
    instance_count: int = Field(default=1, ge=1, description="Instances of the endpoint.")
    capacity_reservation_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z0-9\-]{1,14}/.*$",
        max_length=258,
        description="ARN of a SageMaker training plan reservation; the endpoint ends with it.",
    )
    inference_ami_version: str | None = Field(
        default=None, description="Host AMI; left out, the one whose driver suits the image's CUDA."
    )

    @field_validator("instance_types")
    @classmethod
    def _no_repeats(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("each instance type once, in order of preference")
        return value


class LifecycleSpec(_Part):
    """When the endpoint goes away."""

    idle_minutes: int = Field(
        default=60,
        ge=5,
        le=10080,
        description="Proven quiet for this long counts as idle; with the grace at least 15 minutes.",
    )
    grace_minutes: int = Field(
        default=10, ge=10, le=1440, description="Looked at again after this; a stream may last 8."
    )
    idle: Idle = Field(
        default="turn-off",
        description="What becomes of an idle endpoint: turn-off (resume brings it back), or scale-to-zero "
        "(SageMaker itself removes the instances and brings them back, minutes after a request failed).",
    )
    max_lifetime_hours: float = Field(
        default=8.0, gt=0, le=8760, allow_inf_nan=False, description="Deleted after this, whatever happens."
    )
    budget_usd: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Refuse a plan that could cost more than this."
    )


class AutoscalingSpec(_Part):
    """How many instances there are, by the requests in flight; left out, their number is fixed."""

    min_instances: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Never fewer; left out, 1, or 0 with lifecycle.idle: scale-to-zero.",
    )
    max_instances: int = Field(
        default=2, ge=1, le=1000, description="Never more; the budget counts with these."
    )
    target_concurrency: float = Field(
        default=8.0, gt=0, allow_inf_nan=False, description="Requests in flight per instance to aim at."
    )
    scale_in_minutes: int = Field(
        default=10, ge=5, le=60, description="Minutes between two removals; a stream may last 8."
    )

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        if self.min_instances is not None and self.min_instances > self.max_instances:
            raise ValueError(
                f"min_instances: found {self.min_instances} with max_instances {self.max_instances}; "
                f"allowed: 0 to {self.max_instances}"
            )
        return self


class MetricsSpec(_Part):
    """What SageMaker writes to CloudWatch: the engine's own figures and the GPUs'."""

    detailed: bool = Field(
        default=True, description="Also the engine's /metrics and each GPU, queried by PromQL."
    )
    publish_seconds: Literal[10, 30, 60, 120, 180, 240, 300] = Field(
        default=60, description="Seconds between two figures."
    )


class VpcSpec(_Part):
    """The network of the containers."""

    subnet_ids: list[_NetworkId] = Field(min_length=1, max_length=16, description="Subnets.")
    security_group_ids: list[_NetworkId] = Field(min_length=1, max_length=5, description="Security groups.")


class SecuritySpec(_Part):
    """What the containers may reach, and which key encrypts their volume."""

    network_isolation: bool = Field(default=True, description="No network calls out of the containers.")
    kms_key_id: str | None = Field(
        default=None, pattern=r"^[a-zA-Z0-9:/_-]+$", max_length=2048, description="KMS key of the volume."
    )
    vpc: VpcSpec | None = Field(default=None, description="Left out, SageMaker's own network.")


class EndpointSpec(_Part):
    """One endpoint.

    Raises:
        SpecError: from the constructor, naming each bad field, what was found and what is allowed.
    """

    name: str = Field(description="Endpoint name: letters, digits and inner hyphens, at most 63.")
    model: str = Field(min_length=1, description="Catalogue id of the target model.")
    source: Source | None = Field(
        default=None, description="jumpstart or container; left out, the catalogue's first for the model."
    )
    speculation: SpeculationSpec = Field(default_factory=SpeculationSpec)
    serving: ServingSpec = Field(default_factory=ServingSpec)
    placement: PlacementSpec = Field(default_factory=PlacementSpec)
    lifecycle: LifecycleSpec = Field(default_factory=LifecycleSpec)
    hours: str | None = Field(
        default=None,
        max_length=1024,
        description="When it is on, kept by the guard: Mon-Fri 08:00-19:00 Europe/Berlin; left out, always.",
    )
    autoscaling: AutoscalingSpec | None = Field(
        default=None, description="Left out, placement.instance_count instances at all times."
    )
    update: Update = Field(
        default="in-place",
        description="How it is changed: in-place (a second fleet runs beside the first until it serves, "
        "and is paid for), or off-update-on (no second fleet, not in service meanwhile).",
    )
    metrics: MetricsSpec = Field(default_factory=MetricsSpec)
    security: SecuritySpec = Field(default_factory=SecuritySpec)
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of your own on everything created.")
    execution_role_arn: RoleArn | None = Field(default=None, description="Role of the containers.")
    scheduler_role_arn: RoleArn | None = Field(default=None, description="Role that may delete the endpoint.")
    image: str | None = Field(
        default=None, pattern=r"^\S+$", max_length=255, description="Image URI; left out, the catalogue's."
    )
    model_uri: S3Prefix | None = Field(default=None, description="S3 prefix of the target's files.")
    head_uri: S3Prefix | None = Field(default=None, description="S3 prefix of the draft head's files.")
    accept_eula: bool = Field(default=False, description="You accept the model's licence terms.")
    startup_timeout_s: int = Field(
        default=3600, ge=60, le=3600, description="Seconds to wait for the container's first healthy /ping."
    )

    # Not a field: what `peagle-sm lock` wrote beside the spec's file. It goes wherever the spec goes.
    _locks: Mapping[Place, Lock] = PrivateAttr(default_factory=dict)

    if not TYPE_CHECKING:  # a type checker sees the fields; callers get SpecError instead of pydantic's error

        def __init__(self, **data: Any) -> None:
            """Validate the fields; raises SpecError."""
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise explain(error, origin="spec", model=type(self)) from error

    def lock(self, place: Place) -> Lock | None:
        """Return what JumpStart resolved to for AWS or for the local server; None where nothing is locked."""
        return self._locks.get(place)

    def locked_as(self, other: EndpointSpec) -> EndpointSpec:
        """Return this spec with the locks of another, from which it was made."""
        return self.with_locks(other._locks)

    def with_locks(self, locks: Mapping[Place, Lock]) -> EndpointSpec:
        """Return this spec with the locks given."""
        copy = self.model_copy()
        copy._locks = dict(locks)
        return copy

    @field_validator("name")
    @classmethod
    def _name_that_aws_accepts(cls, value: str) -> str:
        if not ENDPOINT_NAME.fullmatch(value):
            raise ValueError(
                "1 to 63 letters, digits and hyphens, beginning and ending with a letter or digit "
                f"({ENDPOINT_NAME.pattern})"
            )
        return value

    @field_validator("hours")
    @classmethod
    def _hours_as_the_guard_reads_them(cls, value: str | None) -> str | None:
        return value if value is None else str(parse_hours(value))

    @model_validator(mode="after")
    def _instances_fit_the_scaling(self) -> Self:
        scaling, count = self.autoscaling, self.placement.instance_count
        if scaling is None:
            return self
        to_zero = self.lifecycle.idle == "scale-to-zero"
        if scaling.min_instances is not None and (scaling.min_instances == 0) != to_zero:
            raise ValueError(
                f"autoscaling.min_instances: found {scaling.min_instances} with lifecycle.idle "
                f"{self.lifecycle.idle!r}; allowed: {'0' if to_zero else '1 or more'}, or leave it out"
            )
        least, most = self.instance_bounds
        if not max(1, least) <= count <= most:
            raise ValueError(
                f"placement.instance_count: found {count}; allowed: {max(1, least)} to {most}, "
                "within autoscaling's bounds (it is where scaling starts)"
            )
        return self

    @property
    def instance_bounds(self) -> tuple[int, int]:
        """The fewest and the most instances that scaling may come to; equal where nothing scales."""
        scaling, count = self.autoscaling, self.placement.instance_count
        least = 0 if self.lifecycle.idle == "scale-to-zero" else count if scaling is None else 1
        if scaling is None:
            return least, count
        return least if scaling.min_instances is None else scaling.min_instances, scaling.max_instances

    @field_validator("tags")
    @classmethod
    def _tags_of_ones_own(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if key.lower().startswith(("aws:", "peagle-sm:")):
                raise ValueError(f"tag keys that do not begin with aws: or peagle-sm: (found {key!r})")
            if not all(_allowed_in_tag(char) for char in key + text):
                raise ValueError(f"letters, digits, spaces and _ . : / = + - @ (found {key!r}: {text!r})")
            if not 1 <= len(key) <= 128 or len(text) > 256:
                raise ValueError("keys of 1 to 128 characters and values of at most 256")
        if len(value) > 30:
            raise ValueError("at most 30 tags (AWS takes 50, and up to 20 are peagle-sm's own)")
        return value

    @field_validator("model_uri", "head_uri")
    @classmethod
    def _prefix_ends_in_slash(cls, value: str | None) -> str | None:
        return value if value is None or value.endswith("/") else value + "/"


def parse_spec(text: str, origin: str = "spec") -> EndpointSpec:
    """Read a spec from YAML; ``origin`` (a file name, say) opens each message.

    Raises:
        SpecError: not YAML, not a mapping, or a bad field.
    """
    try:
        data = yaml.load(text, Loader=UniqueKeys)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(
            f"{origin}: not YAML{where}: {getattr(error, 'problem', None) or error}",
            next_step="Correct the YAML; `peagle-sm init` writes a spec to start from.",
        ) from error
    if not isinstance(data, dict):
        raise SpecError(
            f"{origin}: found {show(data)}; allowed: a mapping of fields such as name and model",
            next_step="Write `name: …` and `model: …`; `peagle-sm init` writes a spec to start from.",
        )
    try:
        return EndpointSpec(**{str(key): value for key, value in data.items()})
    except SpecError as error:
        raise with_lines(error, text, origin) from error


def load_spec(path: Path | str, *, locks: bool = True) -> EndpointSpec:
    """Read a spec from a YAML file, with the locks that lie beside it unless ``locks`` is False.

    Raises:
        SpecError: the file, or a lock beside it, cannot be read, is not YAML, or has a bad field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            next_step="Name an existing spec file, or write one with `peagle-sm init`.",
        ) from error
    spec = parse_spec(text, origin=str(path))
    return spec.with_locks(locks_beside(Path(path))) if locks else spec


def dump_spec(spec: EndpointSpec) -> str:
    """Write a spec as YAML that `parse_spec` reads back; fields at their defaults are left out."""
    data = spec.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    # PyYAML writes U+0085 as it is and reads it as a line break; escaped, it comes back.
    return text if "\x85" not in text else yaml.safe_dump(data, sort_keys=False)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a spec file."""
    schema = EndpointSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
