"""Hyperparameters: SageMaker's strings to checked numbers, and those to the library's recipe. Pure.

SageMaker passes every value as a string. The head to start from gives the values that the user left out. A
value that contradicts the head is a mistake, since the weights would not fit.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from peagle_train import Mistake
from peagle_train.rules import contradictions

Parse = Callable[[str], Any]


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


def _setting(default: Any, rule: tuple[Parse, str]) -> Any:
    """Return a field with its default, how its text is read, and what is allowed."""
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True)
class Settings:
    """What a job trains with; None where the target or the head to start from decides."""

    num_depths: int = _setting(8, _whole(1, 32))
    num_draft_layers: int | None = _setting(None, _whole(1, 16))
    down_sample_ratio: float = _setting(0.8, _ratio(0.05, 1))
    down_sample_ratio_min: float = _setting(0.2, _ratio(0, 1))
    sequence_length: int = _setting(4096, _whole(16, 1 << 20))
    sequence_partitions: int = _setting(1, _whole(1, 256))
    micro_batch_size: int = _setting(1, _whole(1, 1024))
    grad_accumulation_steps: int = _setting(8, _whole(1, 4096))
    epochs: int = _setting(1, _whole(1, 1000))
    max_steps: int | None = _setting(None, _whole(1, 10_000_000))
    learning_rate: float = _setting(1e-4, _ratio(1e-8, 1))
    warmup_ratio: float = _setting(0.05, _ratio(0, 1))
    min_lr_ratio: float = _setting(0.1, _ratio(0, 1))
    weight_decay: float = _setting(0.0, _ratio(0, 1))
    aux_layer_ids: tuple[int, ...] | None = _setting(None, _three_layers())
    mask_token_id: int | None = _setting(None, _whole(0, 1 << 24))
    draft_num_attention_heads: int | None = _setting(None, _whole(1, 1024))
    draft_num_key_value_heads: int | None = _setting(None, _whole(1, 1024))
    draft_intermediate_size: int | None = _setting(None, _whole(1, 1 << 20))
    draft_vocab_size: int | None = _setting(None, _whole(16, 1 << 24))
    freeze_embeddings: bool = _setting(False, _switch())
    gradient_checkpointing: bool = _setting(False, _switch())
    checkpoint_every_steps: int = _setting(100, _whole(1, 1_000_000))
    log_every_steps: int = _setting(10, _whole(1, 1_000_000))
    seed: int = _setting(42, _whole(0, 2**32 - 1))
    expert_parallel_size: int = _setting(1, _whole(1, 1024))
    target_shards: int = _setting(1, _whole(1, 1024))


OF_THE_HEAD = (
    "num_draft_layers",
    "aux_layer_ids",
    "mask_token_id",
    "draft_num_attention_heads",
    "draft_num_key_value_heads",
    "draft_intermediate_size",
    "draft_vocab_size",
)
"""Settings that a head to start from decides."""
DEFAULT_LAYERS = 4
"""Layers of a head from nothing: what the authors and the library's own example train."""


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Read SageMaker's ``hyperparameters.json``.

    Raises:
        Mistake: a name is unknown, a value is not allowed, or two values contradict each other.
    """
    rules = {entry.name: entry.metadata["rule"] for entry in fields(Settings)}
    unknown = sorted(set(given) - set(rules))
    if unknown:
        raise Mistake(f"unknown hyperparameter {', '.join(unknown)}; allowed: {', '.join(rules)}")
    values = {}
    for name, value in given.items():
        parse, allowed = rules[name]
        # The SageMaker SDK writes a string as JSON, in quotes.
        text = str(value).strip().strip('"')
        try:
            values[name] = parse(text)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Mistake(f"hyperparameter {name}: found {text[:80]!r}; allowed: {allowed}") from error
    settings = Settings(**values)
    if settings.sequence_partitions > settings.sequence_length // 16:
        raise Mistake(
            f"sequence_partitions: {settings.sequence_partitions} parts of {settings.sequence_length} tokens"
            " are shorter than 16 tokens; use fewer"
        )
    if settings.down_sample_ratio_min > settings.down_sample_ratio:
        raise Mistake("down_sample_ratio_min is larger than down_sample_ratio; it is the least that is kept")
    return settings


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
    """Return the settings for ``training.json``."""
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
    document: dict[str, Any] = {
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
        document["distributed"] = {
            "strategy": "fsdp2",
            "tp_size": 1,
            "ep_size": settings.expert_parallel_size,
        }
    elif settings.target_shards > 1:
        # Each group of GPUs has a whole target, so that layers are gathered within one instance.
        copies = world // settings.target_shards
        document["distributed"] = {"strategy": "fsdp2", "tp_size": 1, "dp_replicate_size": copies}
    return document
