"""The speculation modes: what vLLM has for each one. Pure.

One table is the source for the spec, the plan, the checks, the measuring commands and the reference page.
Read from vLLM 0.32.0: ``config/speculative.py``, ``v1/worker/gpu_model_runner.py``, ``v1/spec_decode``,
``v1/worker/gpu/spec_decode`` and ``config/vllm.py`` (``_get_v2_model_runner_unsupported_features`` and
``_validate_adaptive_verification``). The first version of each method is in ``core/data/engines.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

Mode = Literal[
    "none", "ngram", "suffix", "draft-model", "mtp", "eagle3", "dflash", "dspark", "p-eagle"
]  # in the order of every list and chart
MODES: tuple[Mode, ...] = get_args(Mode)

Drafter = Literal["nothing", "text", "head", "head or target", "model"]
"""Where draft tokens come from; "head or target": a head, or weights inside the target's own files."""

DRAFT_TOKENS = "num_speculative_tokens"
HEAD = "draft_head"
TABLE = "num_speculative_tokens_per_batch_size"
_SAMPLING = "draft_sample_method"
ADAPTIVE = "enable_adaptive_verification"
SAMPLE_METHOD = "rejection_sample_method"
SYNTHETIC = "synthetic"
"""Value of `SAMPLE_METHOD`: vLLM accepts draft tokens at a given rate, so that answers are wrong."""
SYNTHETIC_LENGTH = "synthetic_acceptance_length"


@dataclass(frozen=True)
class Refusal:
    """An engine argument with which vLLM refuses a mode.

    ``allowed`` are the values that it takes, none if the argument must be absent. ``part`` is a field of an
    argument that takes an object. ``with_field``: only if this field of the speculation is on.
    """

    argument: str
    allowed: tuple[Any, ...] = (False,)
    part: str = ""
    with_field: str = ""

    @property
    def name(self) -> str:
        """The argument's name, with its part."""
        return f"{self.argument}.{self.part}" if self.part else self.argument

    def refused(self, value: Any) -> Any:
        """Return the refused value of the argument; None if it is allowed."""
        if self.part:
            value = value.get(self.part) if isinstance(value, Mapping) else None
        known = {str(each).lower() for each in self.allowed}
        return None if value in (None, False, {}, "") or str(value).lower() in known else value


@dataclass(frozen=True)
class ModeFacts:
    """One mode.

    ``config`` names it in vLLM's speculative config. ``fields`` are its fields in the spec, with vLLM's
    names. ``draft_tokens`` is K where neither spec nor model gives one. ``one_pass``: all draft tokens come
    from one pass, whose size is fixed at the start. ``reads_layers``: the head reads hidden states of the
    target's layers. ``always_drafts``: each step has draft tokens; if not, only where text repeats.
    ``runners`` are vLLM's model runners that have it; ``pins_v1``: the plan chooses V1. ``stages`` is the
    first vLLM with pipeline stages, "never" or "unknown". ``exact``: the answers are the target's own.
    ``memory`` and ``runs_here`` are for readers.
    """

    title: str
    config: Mapping[str, Any] = field(default_factory=dict)
    drafter: Drafter = "nothing"
    fields: tuple[str, ...] = ()
    draft_tokens: int = 0
    one_pass: bool = False
    reads_layers: bool = False
    always_drafts: bool = True
    runners: tuple[Literal["v1", "v2"], ...] = ("v1", "v2")
    pins_v1: bool = False
    stages: str = "unknown"
    refuses: tuple[Refusal, ...] = ()
    exact: bool = True
    memory: str = "weights, and a KV cache of its own"
    runs_here: bool = False

    @property
    def speculates(self) -> bool:
        """True if draft tokens are proposed."""
        return bool(self.config)

    @property
    def has_weights(self) -> bool:
        """True if the drafter has weights of its own, or may have."""
        return self.drafter not in ("nothing", "text")

    @property
    def needs_head(self) -> bool:
        """True if its weights are never inside the target's files."""
        return self.drafter in ("head", "model")

    @property
    def changes_k(self) -> bool:
        """True if K may change in a running engine."""
        return TABLE in self.fields


_NO_ASYNC = Refusal("async_scheduling")
_NO_WATERMARK = Refusal("watermark_config", allowed=())
_WITH_ADAPTIVE = (
    Refusal("enforce_eager", with_field=ADAPTIVE),
    Refusal("enable_lora", with_field=ADAPTIVE),
    Refusal("enable_return_routed_experts", with_field=ADAPTIVE),
    Refusal("pipeline_parallel_size", allowed=(1,), with_field=ADAPTIVE),
    Refusal(
        "compilation_config",
        allowed=("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
        part="cudagraph_mode",
        with_field=ADAPTIVE,
    ),
)

TABLE_OF_MODES: Mapping[Mode, ModeFacts] = MappingProxyType(
    {
        "none": ModeFacts("no speculation", stages="", memory="none", runs_here=True),
        "ngram": ModeFacts(
            "n-gram",
            {"method": "ngram"},
            "text",
            (DRAFT_TOKENS, "prompt_lookup_max", "prompt_lookup_min", TABLE),
            draft_tokens=5,
            always_drafts=False,
            refuses=(_NO_ASYNC, _NO_WATERMARK),
            memory="none",
            runs_here=True,
        ),
        "suffix": ModeFacts(
            "suffix decoding",
            {"method": "suffix"},
            "text",
            (
                DRAFT_TOKENS,
                "suffix_decoding_max_tree_depth",
                "suffix_decoding_max_cached_requests",
                "suffix_decoding_max_spec_factor",
                "suffix_decoding_min_token_prob",
            ),
            draft_tokens=24,
            always_drafts=False,
            runners=("v1",),
            pins_v1=True,
            refuses=(_NO_ASYNC, _NO_WATERMARK),
            memory="host memory: trees of suffix_decoding_max_cached_requests answers",
        ),
        "draft-model": ModeFacts(
            "draft model",
            {"method": "draft_model"},
            "model",
            (DRAFT_TOKENS, HEAD, "use_heterogeneous_vocab", _SAMPLING, TABLE),
            draft_tokens=3,
            refuses=(_NO_WATERMARK,),
        ),
        "mtp": ModeFacts(
            "MTP",
            {"method": "mtp"},
            "head or target",
            (DRAFT_TOKENS, HEAD, "index_share_for_mtp_iteration", _SAMPLING, TABLE),
            draft_tokens=1,
        ),
        "eagle3": ModeFacts(
            "EAGLE-3",
            {"method": "eagle3"},
            "head",
            (DRAFT_TOKENS, HEAD, _SAMPLING, TABLE),
            draft_tokens=3,
            reads_layers=True,
            pins_v1=True,
            stages="0.30.0",
            runs_here=True,
        ),
        "dflash": ModeFacts(
            "DFlash",
            {"method": "dflash"},
            "head",
            (DRAFT_TOKENS, HEAD, _SAMPLING),
            draft_tokens=7,
            one_pass=True,
            reads_layers=True,
            stages="0.30.0",
            refuses=(_NO_WATERMARK,),
        ),
        "dspark": ModeFacts(
            "DSpark",
            {"method": "dspark"},
            "head or target",
            (DRAFT_TOKENS, HEAD, "dspark_draft_topk", ADAPTIVE, "draft_tensor_parallel_size", _SAMPLING),
            draft_tokens=7,
            one_pass=True,
            reads_layers=True,
            runners=("v2",),
            stages="0.30.0",
            refuses=_WITH_ADAPTIVE,
        ),
        "p-eagle": ModeFacts(
            "P-EAGLE",
            {"method": "eagle3", "parallel_drafting": True},
            "head",
            (DRAFT_TOKENS, HEAD, _SAMPLING, TABLE),
            draft_tokens=3,
            one_pass=True,
            reads_layers=True,
            runners=("v1",),
            pins_v1=True,
            stages="never",
            refuses=(_NO_WATERMARK,),
            runs_here=True,
        ),
    }
)
SPECULATING: tuple[Mode, ...] = tuple(mode for mode in MODES if TABLE_OF_MODES[mode].speculates)
WITH_HEAD: tuple[Mode, ...] = tuple(mode for mode in MODES if TABLE_OF_MODES[mode].has_weights)


def facts_of(mode: Mode) -> ModeFacts:
    """Return the table's row of a mode."""
    return TABLE_OF_MODES[mode]


def title_of(mode: str) -> str:
    """Return a mode's name for readers: ``P-EAGLE``; ``mode unknown`` for anything else."""
    return next((facts.title for name, facts in TABLE_OF_MODES.items() if name == mode), "mode unknown")


def modes_with(name: str) -> tuple[Mode, ...]:
    """Return the modes that have a field of the spec."""
    return tuple(mode for mode in MODES if name in TABLE_OF_MODES[mode].fields)


def is_synthetic(config: Mapping[str, Any] | None) -> bool:
    """Return whether an engine with this speculative config accepts draft tokens at a given rate."""
    return config is not None and config.get(SAMPLE_METHOD) == SYNTHETIC


def mode_of_config(config: Mapping[str, Any]) -> Mode | None:
    """Return the mode of a speculative config of vLLM; None if the table lacks it."""
    matching = [
        mode
        for mode in SPECULATING
        if all(config.get(name) == value for name, value in TABLE_OF_MODES[mode].config.items())
    ]
    return max(matching, key=lambda mode: len(TABLE_OF_MODES[mode].config), default=None)
