"""Endpoints for the packs on the local engine: a plain one, a clean one, and others with seeded faults.

Some faults are faults of the local SageMaker (`LOCAL_FAULTS`), on a clean endpoint. The others are in the
engine's process: a vLLM plugin on its PYTHONPATH damages the draft head, or the target
beside it, from one position on. Below that position everything is as shipped. So a pack that looks at short
prompts alone cannot find them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, ServingSpec
from peagle_sm.core.spec.modes import Mode
from tests.e2e.tiny_code import spec_of

#: The engine reports cached prompt tokens, which the pack of agents needs.
REPORTS_CACHE = {"SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS": "true"}
NO_CACHE = {"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "true"}
PLAIN, CLEAN, SHORT, OTHER = "packs-plain", "packs-clean", "packs-short-head", "packs-other-target"
#: Of the clean endpoint: at the default of 11 this CPU gains nothing on text of low acceptance.
CLEAN_K = 5
TOOLS = {"SM_VLLM_TOOL_CALL_PARSER": "hermes", "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true"}
#: Faults of the local SageMaker (`peagle-sm local fault`), on a pack's clean endpoint.
LOCAL_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "draft-tokens": {"kind": "draft-tokens", "operation": "stream", "after_events": 3},
    "keeps-generating": {"kind": "keeps-generating", "operation": "stream"},
    "no-format": {"kind": "no-format"},
}
#: Position from which the damage shows: inside the 496 tokens of the stand-in heads' training.
FROM = 200

_PLUGIN = """
import os
import torch

def register():
    part, _, start = os.environ.get("PEAGLE_DAMAGE", "").partition(":")
    if part == "head":
        from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM as Head
        whole = Head.forward

        def forward(self, input_ids, positions, hidden_states, inputs_embeds=None):
            far = (positions >= int(start)).unsqueeze(-1)
            return whole(self, input_ids, positions, hidden_states.masked_fill(far, 0.0), inputs_embeds)

        Head.forward = forward
    elif part == "target":
        from vllm.model_executor.models.llama import LlamaForCausalLM as Target
        whole = Target.forward

        def forward(self, input_ids, positions, *more, **named):
            found = whole(self, input_ids, positions, *more, **named)
            hidden, *aux = found if isinstance(found, tuple) else (found,)
            far = (positions >= int(start)).unsqueeze(-1)
            hidden = torch.where(far, hidden.roll(1, dims=-1), hidden)
            return (hidden, *aux) if isinstance(found, tuple) else hidden

        Target.forward = forward
"""


def write_plugin(folder: Path) -> Path:
    """Write the plugin as an installed package; return the folder for PYTHONPATH."""
    (folder / "peagle_damage.py").write_text(_PLUGIN)
    facts = folder / "peagle_damage-1.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: peagle-damage\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "[vllm.general_plugins]\npeagle_damage = peagle_damage:register\n"
    )
    return folder


def specs(folder: Path) -> dict[str, EndpointSpec]:
    """Return the spec of each endpoint; ``folder`` is what `write_plugin` returned."""
    # The gate's canary refuses a damaged head at the start; the packs are to find it without.
    damaged = {**REPORTS_CACHE, "PYTHONPATH": str(folder), "PEAGLE_GATE": "off"}
    return {
        PLAIN: _named(PLAIN, "none", {**REPORTS_CACHE, **TOOLS}),
        CLEAN: _named(CLEAN, "p-eagle", {**REPORTS_CACHE, **TOOLS}, k=CLEAN_K),
        SHORT: _named(SHORT, "p-eagle", {**damaged, **NO_CACHE, "PEAGLE_DAMAGE": f"head:{FROM}"}),
        OTHER: _named(OTHER, "p-eagle", {**damaged, "PEAGLE_DAMAGE": f"target:{FROM}"}),
    }


def _named(name: str, mode: Mode, env: Mapping[str, str], k: int | None = None) -> EndpointSpec:
    fields: dict[str, Any] = spec_of(mode, k).model_dump(exclude_unset=True)
    return EndpointSpec(**{**fields, "name": name, "serving": ServingSpec(env=dict(env))})
