"""Hyperparameters: SageMaker's strings to checked numbers, and those to the library's recipe. Pure.

SageMaker passes every value as a string. What a head to start from says of itself stands for what was not
given; a value that contradicts it is a mistake, since the weights would not fit.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from peagle_train import Mistake
from peagle_train.rules import contradictions

Parse = Callable[[str], Any]


@dataclass(frozen=True)
class Settings:
    """What a job trains with; None where the target or the head to start from decides."""

    num_depths: int = 8
    num_draft_layers: int | None = None
    down_sample_ratio: float = 0.8
    down_sample_ratio_min: float = 0.2
    sequence_length: int = 4096
    sequence_partitions: int = 1
    micro_batch_size: int = 1
    grad_accumulation_steps: int = 8
    epochs: int = 1
    max_steps: int | None = None
    learning_rate: float = 1e-4
    warmup_ratio: float = 0.05
    min_lr_ratio: float = 0.1
    weight_decay: float = 0.0
    aux_layer_ids: tuple[int, ...] | None = None
    mask_token_id: int | None = None
    draft_num_attention_heads: int | None = None
    draft_num_key_value_heads: int | None = None
    draft_intermediate_size: int | None = None
    freeze_embeddings: bool = False
    gradient_checkpointing: bool = False
    checkpoint_every_steps: int = 100
    log_every_steps: int = 10
    seed: int = 42
    expert_parallel_size: int = 1
    target_shards: int = 1


OF_THE_HEAD = (
    "num_draft_layers",
    "aux_layer_ids",
    "mask_token_id",
    "draft_num_attention_heads",
    "draft_num_key_value_heads",
    "draft_intermediate_size",
)
"""What a head to start from says."""
DEFAULT_LAYERS = 4
"""Layers of a head from nothing: what the authors and the library's own example train."""


def _whole(least: int, most: int) -> tuple[Parse, str]:
    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return parse, f"a whole number from {least} to {most}"


def _ratio(least: float, most: float) -> tuple[Parse, str]:
    def parse(text: str) -> float:
        value = float(text)
        if not least <= value <= most:  # not true of nan either
            raise ValueError(text)
        return value

    return parse, f"a number from {least:g} to {most:g}"


def _switch() -> tuple[Parse, str]:
    return lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()], "true or false"


def _three_layers() -> tuple[Parse, str]:
    def parse(text: str) -> tuple[int, ...]:
        value = json.loads(text)
        if not isinstance(value, list) or len(value) != 3 or len(set(value)) != 3:
            raise ValueError(text)
        if any(type(each) is not int or each < 1 for each in value):
            raise ValueError(text)
        return tuple(value)

    return parse, "three different layers, counted from 1 as vLLM counts them, for example [2, 12, 21]"


_RULES: dict[str, tuple[Parse, str]] = {
    "num_depths": _whole(1, 32),
    "num_draft_layers": _whole(1, 16),
    "down_sample_ratio": _ratio(0.05, 1),
    "down_sample_ratio_min": _ratio(0, 1),
    "sequence_length": _whole(16, 1 << 20),
    "sequence_partitions": _whole(1, 256),
    "micro_batch_size": _whole(1, 1024),
    "grad_accumulation_steps": _whole(1, 4096),
    "epochs": _whole(1, 1000),
    "max_steps": _whole(1, 10_000_000),
    "learning_rate": _ratio(1e-8, 1),
    "warmup_ratio": _ratio(0, 1),
    "min_lr_ratio": _ratio(0, 1),
    "weight_decay": _ratio(0, 1),
    "aux_layer_ids": _three_layers(),
    "mask_token_id": _whole(0, 1 << 24),
    "draft_num_attention_heads": _whole(1, 1024),
    "draft_num_key_value_heads": _whole(1, 1024),
    "draft_intermediate_size": _whole(1, 1 << 20),
    "freeze_embeddings": _switch(),
    "gradient_checkpointing": _switch(),
    "checkpoint_every_steps": _whole(1, 1_000_000),
    "log_every_steps": _whole(1, 1_000_000),
    "seed": _whole(0, 2**32 - 1),
    "expert_parallel_size": _whole(1, 1024),
    "target_shards": _whole(1, 1024),
}


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Read SageMaker's ``hyperparameters.json``.

    Raises:
        Mistake: a name is unknown, a value is none that is allowed, or two contradict each other.
    """
    unknown = sorted(set(given) - set(_RULES))
    if unknown:
        raise Mistake(f"unknown hyperparameter {', '.join(unknown)}; allowed: {', '.join(_RULES)}")
    values = {}
    for name, value in given.items():
        parse, allowed = _RULES[name]
        # The SageMaker SDK writes a string as JSON, in quotes.
        text = str(value).strip().strip('"')
        try:
            values[name] = parse(text)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Mistake(f"hyperparameter {name}: found {text[:80]!r}; allowed: {allowed}") from error
    found = Settings(**values)
    if found.sequence_partitions > found.sequence_length // 16:
        raise Mistake(
            f"sequence_partitions: {found.sequence_partitions} parts of {found.sequence_length} tokens are "
            "shorter than 16 tokens; use fewer"
        )
    if found.down_sample_ratio_min > found.down_sample_ratio:
        raise Mistake("down_sample_ratio_min is larger than down_sample_ratio; it is the least that is kept")
    return found


def joined(settings: Settings, head: Mapping[str, Any] | None) -> Settings:
    """Return the settings with what the head to start from says (by `OF_THE_HEAD`).

    Raises:
        Mistake: a given value contradicts the head, or there is no head and a value that it would give is
        missing.
    """
    if head is None:
        if settings.mask_token_id is None:
            raise Mistake(
                "mask_token_id is missing: without a head to start from, name a token that the data "
                "never has, for example a reserved one of the tokenizer"
            )
        if settings.aux_layer_ids is None:
            raise Mistake(
                "aux_layer_ids is missing: without a head to start from, name three of the target's layers"
            )
        return replace(settings, num_draft_layers=settings.num_draft_layers or DEFAULT_LAYERS)
    given = {name: getattr(settings, name) for name in OF_THE_HEAD}
    for fault in contradictions(given, {name: head[name] for name in OF_THE_HEAD}):
        raise Mistake(f"{fault}; leave it out, or train without the channel head")
    return replace(settings, **{name: head[name] for name in OF_THE_HEAD})


def as_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as they stand in ``training.json``."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()
    }


def recipe(
    settings: Settings,
    *,
    target: str,
    attention: str,
    work: str,
    warm_start: str | None,
    draft_vocab: int | None,
    token_map: str | None,
    on_gpu: bool,
    world: int,
) -> dict[str, Any]:
    """Return the library's recipe (``TrainEagle3Recipe`` with ``parallel_drafting``).

    Its data, its checkpoints and the head's shape are left out: `peagle_train.recipe` brings them. One pass
    of the library is the whole run here, since it restores no position within an epoch. ``world`` is the
    number of processes.
    """
    assert settings.aux_layer_ids is not None
    made: dict[str, Any] = {
        "recipe": "TrainEagle3Recipe",
        "dist_env": {"backend": "nccl" if on_gpu else "gloo", "timeout_minutes": 30},
        "recipe_args": {
            "target_model_name_or_path": target,
            "trust_remote_code": False,
            "target_model_backend": "colocated",
            # The library's own models spread experts over GPUs; transformers' do not.
            "target_force_hf": settings.expert_parallel_size == 1,
            "target_attn_implementation": attention,
            # vLLM counts the layers that came before, the library the layer whose output it takes.
            "aux_layer_ids": [each - 1 for each in settings.aux_layer_ids],
            "train_data_path": "training",
            "output_dir": work,
            "seq_length": settings.sequence_length,
            "packed_sequence_size": 0,
            "micro_batch_size": settings.micro_batch_size,
            "grad_accumulation_steps": settings.grad_accumulation_steps,
            "num_epochs": 1,
            "shuffle_seed": settings.seed,
            "parallel_drafting": True,
            "mask_token_id": settings.mask_token_id,
            "num_depths": settings.num_depths,
            "num_draft_layers": settings.num_draft_layers,
            "down_sample_ratio": settings.down_sample_ratio,
            "down_sample_ratio_min": settings.down_sample_ratio_min,
            "sequence_partitions": settings.sequence_partitions,
            "draft_gradient_checkpointing": settings.gradient_checkpointing,
            "draft_vocab_size": draft_vocab,
            "selected_token_ids_path": token_map,
            "freeze_embeddings": settings.freeze_embeddings,
            "draft_weights_path": warm_start,
            "max_grad_norm": 1.0,
            "log_every_steps": settings.log_every_steps,
            "ckpt_every_steps": settings.checkpoint_every_steps,
        },
        "optimizer": {
            "lr": settings.learning_rate,
            "betas": [0.9, 0.95],
            "weight_decay": settings.weight_decay,
            "warmup_ratio": settings.warmup_ratio,
            "min_lr_ratio": settings.min_lr_ratio,
        },
        "checkpoint": {"enabled": False, "checkpoint_dir": work, "save_consolidated": False},
    }
    if settings.expert_parallel_size > 1:
        made["distributed"] = {"strategy": "fsdp2", "tp_size": 1, "ep_size": settings.expert_parallel_size}
    elif settings.target_shards > 1:
        # Each group of GPUs has a whole target, so that layers are gathered within one instance.
        copies = world // settings.target_shards
        made["distributed"] = {"strategy": "fsdp2", "tp_size": 1, "dp_replicate_size": copies}
    return made
