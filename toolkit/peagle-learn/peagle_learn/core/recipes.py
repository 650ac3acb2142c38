"""Recipes: how the head of each catalogue model is trained, with sizes and sources. Pure.

A recipe holds the target's and the head's sizes, from which memory and hours are computed, and the trainer's
hyperparameters. The spec's fields win over the recipe's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field

from peagle_learn.core.spec import TrainSpec
from peagle_sm.core.engines import PackagedData, read_data
from peagle_sm.core.errors import SpecError

GPU_BYTES = 2
"""Bytes of a value on a GPU: bfloat16."""


class TargetSizes(PackagedData):
    """Sizes of a target; ``bytes_per_parameter`` as the trainer loads it."""

    parameters_billions: float
    active_billions: float
    hidden_size: int
    layers: int
    vocabulary: int
    bytes_per_parameter: int = GPU_BYTES

    @property
    def weights_bytes(self) -> float:
        """Size of the weights in the trainer's memory."""
        return self.parameters_billions * 1e9 * self.bytes_per_parameter


class HeadSizes(PackagedData):
    """Sizes of a head in training."""

    layers: int
    depths: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    draft_vocabulary: int | None = None
    bytes_per_value: int = GPU_BYTES

    def parameters(self, target: TargetSizes) -> float:
        """Number of parameters: embedding, lm_head, fc and layers; the first layer reads 2 states."""
        hidden, inner = target.hidden_size, self.attention_heads * self.head_dim
        keys = self.kv_heads * self.head_dim
        layer = hidden * (inner + 2 * keys) + inner * hidden + 3 * hidden * self.intermediate_size
        wider_first = hidden * (inner + 2 * keys)
        tokens = target.vocabulary + (self.draft_vocabulary or target.vocabulary)
        return tokens * hidden + 3 * hidden * hidden + self.layers * layer + wider_first


class Recipe(PackagedData):
    """The recipe of one model; ``checked`` says which of its sizes were not seen."""

    target: TargetSizes
    head: HeadSizes
    instance_type: str
    expert_parallel: bool = False
    mask_token_id: int | None = None
    aux_layer_ids: tuple[int, ...] = ()
    tokens_per_second: float | None = None
    tokens_per_second_source: str | None = None
    training: Mapping[str, Any] = Field(default_factory=dict)
    checked: str | None = None
    source: str
    date: str

    @property
    def auxiliary_layers(self) -> tuple[int, ...]:
        """Layers of the target that the head reads: vLLM's default of 2, half, and the third from the end."""
        count = self.target.layers
        return self.aux_layer_ids or (2, count // 2, count - 3)


class Speeds(PackagedData):
    """Speed of GPUs, and the share of it that training reaches."""

    source: str
    teraflops: Mapping[str, float]
    utilization: float
    utilization_source: str


class RecipeBook(PackagedData):
    """All recipes by catalogue id."""

    source: str
    date: str
    training: Mapping[str, Any]
    speeds: Speeds
    models: Mapping[str, Recipe]

    def recipe(self, model: str) -> Recipe:
        """Return a model's recipe, with the shared hyperparameters below its own.

        Raises:
            SpecError: there is no recipe of that model.
        """
        recipe = self.models.get(model)
        if recipe is None:
            raise SpecError(
                f"target.model: found {model!r}, which has no recipe; allowed: {', '.join(self.models)}, or "
                "s3:// of the target's own folder",
                next_step="Give the s3:// prefix of the target's Hugging Face folder as target.model.",
                details={"field": "target.model", "allowed": sorted(self.models)},
            )
        return recipe.model_copy(update={"training": {**self.training, **recipe.training}})


@cache
def load_recipes() -> RecipeBook:
    """Return the packaged recipes, which are cached and immutable."""
    return RecipeBook.model_validate(read_data("recipes", "peagle_learn.core"))


def recipe_from_config(config: Mapping[str, Any], weights_bytes: int) -> Recipe:
    """Make the recipe of a target that is not in the catalogue, from its config.json and its files' size.

    Raises:
        SpecError: the config has no sizes; the message names the missing ones.
    """
    text = config.get("text_config")
    sizes = text if isinstance(text, Mapping) else config
    wanted = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    missing = [name for name in wanted if not isinstance(sizes.get(name), int)]
    if missing:
        raise SpecError(
            f"the target's config.json has no {', '.join(missing)}",
            next_step="Give the folder of a Hugging Face language model as target.model.",
        )
    heads, hidden = int(sizes["num_attention_heads"]), int(sizes["hidden_size"])
    inner = int(sizes.get("intermediate_size") or 4 * hidden)
    experts = sizes.get("num_experts") or sizes.get("num_local_experts") or 0
    parameters = weights_bytes / GPU_BYTES / 1e9
    book = load_recipes()
    return Recipe(
        target=TargetSizes(
            parameters_billions=parameters,
            active_billions=parameters,
            hidden_size=hidden,
            layers=int(sizes["num_hidden_layers"]),
            vocabulary=int(sizes["vocab_size"]),
        ),
        head=HeadSizes(
            layers=4,
            depths=8,
            attention_heads=heads,
            kv_heads=int(sizes.get("num_key_value_heads") or heads),
            head_dim=int(sizes.get("head_dim") or hidden // heads),
            intermediate_size=4 * hidden if experts else inner,
        ),
        instance_type="ml.p5en.48xlarge",
        expert_parallel=bool(experts),
        training=book.training,
        checked="assumed: 4 layers and 8 depths; sizes from the target's config.json",
        source="config.json of the target",
        date=book.date,
    )


#: Fields of the spec that are the trainer's hyperparameters, by the same name.
HYPERPARAMETERS = (
    "num_depths",
    "num_draft_layers",
    "down_sample_ratio",
    "down_sample_ratio_min",
    "sequence_length",
    "sequence_partitions",
    "micro_batch_size",
    "grad_accumulation_steps",
    "epochs",
    "max_steps",
    "learning_rate",
    "warmup_ratio",
    "min_lr_ratio",
    "weight_decay",
    "aux_layer_ids",
    "mask_token_id",
    "draft_num_attention_heads",
    "draft_num_key_value_heads",
    "draft_intermediate_size",
    "draft_vocab_size",
    "freeze_embeddings",
    "gradient_checkpointing",
    "checkpoint_every_steps",
    "log_every_steps",
    "seed",
    "expert_parallel_size",
    "target_shards",
)


def chosen(train: TrainSpec, recipe: Recipe, *, warm: bool, gpus: int) -> dict[str, Any]:
    """Return the hyperparameters: the recipe's, and over them the spec's.

    With a warm start the head's own shape counts, so the recipe's shape is left out.
    """
    head = recipe.head
    values: dict[str, Any] = {**recipe.training, "num_depths": head.depths}
    if not warm:
        values |= {
            "num_draft_layers": head.layers,
            "draft_num_attention_heads": head.attention_heads,
            "draft_num_key_value_heads": head.kv_heads,
            "draft_intermediate_size": head.intermediate_size,
            "aux_layer_ids": list(recipe.auxiliary_layers),
        }
        if head.draft_vocabulary is not None:
            values["draft_vocab_size"] = head.draft_vocabulary
        if recipe.mask_token_id is not None:
            values["mask_token_id"] = recipe.mask_token_id
    if gpus > 1 and max(train.expert_parallel_size or 1, train.target_shards or 1) == 1:
        values["expert_parallel_size" if recipe.expert_parallel else "target_shards"] = gpus
    given = {name: getattr(train, name) for name in HYPERPARAMETERS}
    values |= {name: value for name, value in given.items() if value is not None}
    return {name: values[name] for name in HYPERPARAMETERS if name in values}


def shards_of(values: Mapping[str, Any]) -> int:
    """Return the number of GPUs that share the target: by its experts, or all of its weights."""
    return max(int(values.get(name) or 1) for name in ("expert_parallel_size", "target_shards"))


def head_sizes(recipe: Recipe, values: Mapping[str, Any]) -> HeadSizes:
    """Return the head's sizes with the hyperparameters' shape."""
    fields = {
        "layers": "num_draft_layers",
        "depths": "num_depths",
        "attention_heads": "draft_num_attention_heads",
        "kv_heads": "draft_num_key_value_heads",
        "intermediate_size": "draft_intermediate_size",
        "draft_vocabulary": "draft_vocab_size",
    }
    shape = {field: values[name] for field, name in fields.items() if values.get(name) is not None}
    return recipe.head.model_copy(update=shape)
