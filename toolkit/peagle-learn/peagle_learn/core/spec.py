"""LearnSpec: what learn.yaml says of a head's training, from the data to the promotion. Pure.

Fields that are left out take the recipe's values (`core/recipes.py`), not values of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator, model_validator

from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_sm.core.errors import SpecError
from peagle_sm.core.slice_values import LONGEST_VALUE
from peagle_sm.core.spec.endpoint_spec import ENDPOINT_NAME, NetworkId, RoleArn
from peagle_sm.core.spec.validation import OwnTags, SpecPart, explain, read_mapping, with_lines

LONGEST_NAME = 40
"""A job's name is the spec's and 12 more characters, so that one that runs is found again; AWS allows 63."""
FROM_NOTHING = "none"
"""`head: none`: the head starts with random weights."""
_KMS_KEY = r"^[a-zA-Z0-9:/_-]+$"


def _s3_prefix(value: str) -> str:
    if not value.startswith("s3://") or not value[len("s3://") :].strip("/") or " " in value:
        raise ValueError("s3://BUCKET, or s3://BUCKET/PREFIX")
    return value.rstrip("/") + "/"


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


S3Folder = Annotated[str, AfterValidator(_s3_prefix)]
#: Paths, `s3://` addresses, or one of them.
Sources = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_one_or_more)]


class TargetSpec(SpecPart):
    """The model that the head drafts for."""

    model: str = Field(min_length=1, description="Catalogue id, or s3:// of a Hugging Face folder.")
    uri: S3Folder | None = Field(
        default=None, description="s3:// of a catalogue model's weights; left out, JumpStart's or the local."
    )
    revision: str | None = Field(
        default=None, min_length=1, description="Commit of the weights, for the head's manifest."
    )
    accept_eula: bool = Field(default=False, description="You accept the model's licence terms.")

    @property
    def place(self) -> str:
        """Where its config and tokenizer are read: ``uri``, else what ``model`` names."""
        return self.uri or self.model


class SelfWrittenSpec(SpecPart):
    """Prompts that the target writes itself, as it continues a chat that ends where a user's turn begins."""

    count: int = Field(ge=1, le=1_000_000, description="Prompts to write.")
    category: str | None = Field(
        default=None, min_length=1, max_length=LONGEST_VALUE, description="Their kind, for figures by kind."
    )
    system: str | None = Field(
        default=None, min_length=1, description="System message while it writes; not part of the prompts."
    )
    temperature: float = Field(default=1.0, gt=0, le=2, description="Temperature while it writes.")
    answer_temperature: float = Field(default=0.0, ge=0, le=2, description="Temperature of the answers.")


class DataSpec(SpecPart):
    """Prompts, and the target's answers to them."""

    prompts: Sources = Field(
        default=(), description="Recorded traffic or JSONL files of prompts; paths, globs or s3://."
    )
    self_written: tuple[SelfWrittenSpec, ...] = Field(
        default=(), description="Prompts that the target writes itself, beside or without data.prompts."
    )
    held_out: float = Field(
        default=0.1, gt=0, lt=1, description="Share of the conversations that are never trained on."
    )
    general: str | None = Field(
        default=None, min_length=1, description="Prompts of other kinds, that must not become slower."
    )
    general_trained: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of the general conversations that is trained on, too; the rest is measured.",
    )
    limit: int | None = Field(default=None, ge=4, description="Most prompts to take; left out, all.")
    max_tokens: int = Field(default=512, ge=1, description="Most tokens of each sampled answer.")
    concurrency: int = Field(default=8, ge=1, le=1024, description="Requests in flight while sampling.")
    budget_usd: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Most that sampling the answers may cost."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the split and of the order of the prompts.")

    @field_validator("self_written")
    @classmethod
    def _each_differs(cls, value: tuple[SelfWrittenSpec, ...]) -> tuple[SelfWrittenSpec, ...]:
        kinds = {tuple(each.model_dump(exclude={"count"}).values()) for each in value}
        if len(kinds) < len(value):
            raise ValueError("entries that differ by more than their count; join those that do not")
        return value


class TrainSpec(SpecPart):
    """The training job: where it runs, what it may cost, and how the head is trained."""

    instance_type: str | None = Field(
        default=None, pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$", description="Left out, the recipe's."
    )
    instance_count: int = Field(default=1, ge=1, le=64, description="Instances of the job.")
    volume_gb: int | None = Field(
        default=None, ge=1, le=16384, description="Disk of each instance in GB; left out, computed."
    )
    spot: bool = Field(default=False, description="Managed spot: cheaper, and may be interrupted.")
    max_hours: float = Field(
        default=8.0, gt=0, le=120, allow_inf_nan=False, description="Hours of training, then it is stopped."
    )
    max_wait_hours: float | None = Field(
        default=None,
        gt=0,
        le=240,
        allow_inf_nan=False,
        description="With spot: hours of waiting and training; left out, twice max_hours.",
    )
    budget_usd: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Refuse a job that could cost more than this; a further attempt has all of it again.",
    )
    usd_per_hour: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Price of one instance; needed where the catalogue has no price of training.",
    )
    training: str | None = Field(
        default=None, min_length=1, description="Training data, a path or s3://; left out, learn data's."
    )
    validation: str | None = Field(
        default=None, min_length=1, description="Held-out data, a path or s3://; left out, learn data's."
    )
    image: str | None = Field(
        default=None, pattern=r"^\S+$", max_length=255, description="URI of the training image."
    )
    execution_role_arn: RoleArn | None = Field(
        default=None, description="Role of the job; left out, that of the stack PeagleTraining."
    )
    kms_key: str | None = Field(
        default=None, pattern=_KMS_KEY, max_length=2048, description="KMS key of the disks and the output."
    )
    subnets: list[NetworkId] = Field(default_factory=list, max_length=16, description="Subnets of a VPC.")
    security_groups: list[NetworkId] = Field(
        default_factory=list, max_length=5, description="Security groups of the VPC."
    )
    network_isolation: bool = Field(default=True, description="Block outgoing network calls of the job.")
    tags: OwnTags = Field(default_factory=dict, description="Your own tags for the job.")

    sequence_length: int | None = Field(
        default=None, ge=16, description="Longest conversation in tokens; what is longer is cut."
    )
    sequence_partitions: int | None = Field(
        default=None, ge=1, le=64, description="Parts in which a sequence goes through the head."
    )
    num_depths: int | None = Field(default=None, ge=1, le=32, description="Tokens drafted in one pass (K).")
    num_draft_layers: int | None = Field(default=None, ge=1, le=16, description="Layers of the head.")
    down_sample_ratio: float | None = Field(
        default=None, ge=0.05, le=1, description="Share of the positions that stays from depth to depth."
    )
    down_sample_ratio_min: float | None = Field(
        default=None, ge=0, le=1, description="Least share of the positions at any depth."
    )
    micro_batch_size: int | None = Field(default=None, ge=1, description="Conversations of one GPU at once.")
    grad_accumulation_steps: int | None = Field(
        default=None, ge=1, description="Micro batches of one step of the optimiser."
    )
    epochs: int | None = Field(default=None, ge=1, le=1000, description="Times that the data is used.")
    max_steps: int | None = Field(default=None, ge=1, description="Most steps of the optimiser.")
    learning_rate: float | None = Field(default=None, gt=0, le=1, description="Highest learning rate.")
    warmup_ratio: float | None = Field(default=None, ge=0, le=1, description="Share of steps that warm up.")
    min_lr_ratio: float | None = Field(default=None, ge=0, le=1, description="Last rate over the highest.")
    weight_decay: float | None = Field(default=None, ge=0, le=1, description="Weight decay of AdamW.")
    aux_layer_ids: list[Annotated[int, Field(ge=1)]] | None = Field(
        default=None, min_length=3, max_length=3, description="Layers of the target to read, as vLLM counts."
    )
    mask_token_id: int | None = Field(default=None, ge=0, description="Token in the place of an unknown one.")
    draft_num_attention_heads: int | None = Field(default=None, ge=1, description="Heads of attention.")
    draft_num_key_value_heads: int | None = Field(default=None, ge=1, description="Heads of keys and values.")
    draft_intermediate_size: int | None = Field(default=None, ge=1, description="Width of the head's MLP.")
    draft_vocab_size: int | None = Field(
        default=None,
        ge=16,
        description="Tokens that the head can draft: the data's most frequent; left out, all.",
    )
    freeze_embeddings: bool | None = Field(
        default=None, description="Keep the target's embedding; the head's file is without it."
    )
    gradient_checkpointing: bool | None = Field(
        default=None, description="Compute activations again in the backward pass: less memory."
    )
    checkpoint_every_steps: int | None = Field(
        default=None, ge=1, description="Steps from checkpoint to checkpoint."
    )
    log_every_steps: int | None = Field(default=None, ge=1, description="Steps from line to line of the log.")
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Seed of all chance.")
    expert_parallel_size: int | None = Field(
        default=None, ge=1, le=512, description="GPUs over which a target's experts are spread."
    )
    target_shards: int | None = Field(
        default=None, ge=1, le=512, description="GPUs that share the weights of a target without experts."
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if bool(self.subnets) != bool(self.security_groups):
            missing = "subnets" if self.security_groups else "security_groups"
            raise ValueError(f"{missing}: found [] with a VPC; allowed: at least 1 (a VPC needs both lists)")
        if self.max_wait_hours is not None and not self.spot:
            raise ValueError(
                f"max_wait_hours: found {self.max_wait_hours:g} with spot: false; allowed: left out"
            )
        if self.max_wait_hours is not None and self.max_wait_hours < self.max_hours:
            raise ValueError(
                f"max_wait_hours: found {self.max_wait_hours:g} with max_hours {self.max_hours:g}; "
                f"allowed: {self.max_hours:g} or more"
            )
        return self


class ProveSpec(SpecPart):
    """What a candidate must show before it is offered."""

    confidence: float = Field(default=0.95, ge=0.5, lt=1, description="Level of the intervals.")
    least_gain: float = Field(
        default=0.0, ge=0, le=10, description="Least gain on held-out prompts; 0.05 is 5%."
    )
    most_general_loss: float = Field(
        default=0.02, ge=0, le=1, description="Most that general prompts may lose; 0.02 is 2%."
    )
    prompts: int | None = Field(
        default=None,
        ge=FEWEST_CONVERSATIONS,
        description="Most prompts of each of the two sets, of many conversations; left out, all.",
    )
    max_tokens: int = Field(default=256, ge=1, description="Most tokens of each measured answer.")
    budget_usd: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Refuse a proof that could cost more than this."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the order of the prompts.")


class PromoteSpec(SpecPart):
    """How the endpoint takes the new head."""

    canary_percent: int = Field(
        default=10, ge=1, le=50, description="Share of the capacity that first serves the new head."
    )
    canary_minutes: int = Field(
        default=10, ge=1, le=60, description="Minutes that this share serves alone, with the alarms on."
    )
    least_acceptance: float = Field(
        default=0.9,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Roll back below this share of the last hour's live acceptance; 0.9 is 90%.",
    )


class LearnSpec(SpecPart):
    """A head's training, from prompts to promotion.

    Raises:
        SpecError: from the constructor; names each invalid field, the value found and what is allowed.
    """

    name: str = Field(description=f"Prefix of jobs and S3 folders: letters, digits, hyphens, {LONGEST_NAME}.")
    target: TargetSpec = Field(description="The model that the head drafts for.")
    head: str | None = Field(
        default=None,
        min_length=1,
        description="First weights: a catalogue id, s3:// of a head, or none; left out, the catalogue's.",
    )
    endpoint: str | None = Field(default=None, description="Endpoint that serves the target.")
    bucket: S3Folder = Field(description="s3://BUCKET/PREFIX for data, checkpoints and heads.")
    data: DataSpec = Field(default_factory=DataSpec)
    train: TrainSpec = Field(default_factory=TrainSpec)
    prove: ProveSpec = Field(default_factory=ProveSpec)
    promote: PromoteSpec = Field(default_factory=PromoteSpec)

    if not TYPE_CHECKING:  # a type checker sees the fields; callers get SpecError instead of pydantic's error

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise explain(error, origin="spec", model=type(self)) from error

    @field_validator("name")
    @classmethod
    def _name_that_aws_accepts(cls, value: str) -> str:
        if not ENDPOINT_NAME.fullmatch(value) or len(value) > LONGEST_NAME:
            raise ValueError(
                f"1 to {LONGEST_NAME} letters, digits and hyphens, a letter or digit first and last"
            )
        return value

    @field_validator("endpoint")
    @classmethod
    def _endpoint_that_aws_accepts(cls, value: str | None) -> str | None:
        if value is not None and not ENDPOINT_NAME.fullmatch(value):
            raise ValueError("an endpoint's name: 1 to 63 letters, digits and inner hyphens")
        return value

    @property
    def folder(self) -> str:
        """The S3 prefix of everything that belongs to this spec; ends with a slash."""
        return f"{self.bucket}{self.name}/"


def parse_learn_spec(text: str, origin: str = "spec") -> LearnSpec:
    """Parse learn.yaml; ``origin`` (such as a file name) starts each message.

    Raises:
        SpecError: not YAML, not a mapping, or an invalid field.
    """
    data = read_mapping(
        text,
        origin,
        example="name and target",
        advice="Write `name: …`, `target: {model: …}` and `bucket: s3://…`.",
        not_yaml="Correct the YAML; `peagle-sm help train-a-head` has an example.",
    )
    try:
        return LearnSpec(**data)
    except SpecError as error:
        raise with_lines(error, text, origin) from error
