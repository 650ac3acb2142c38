"""Endpoints for the packs on the local engine: a plain one, a clean one, and others with seeded faults.

Some faults are faults of the local SageMaker (`LOCAL_FAULTS`), on a clean endpoint. The others are in the
engine's process: a vLLM plugin on its PYTHONPATH damages the draft head, or the target
beside it, from one position on. Below that position everything is as shipped. So a pack that looks at short
prompts alone cannot find them.

The shipped model has no reasoning effort. So all endpoints get a chat template that has it (`TEMPLATE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode, ServingSpec
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import spec_of

#: The engine reports cached prompt tokens, which the pack of agents needs.
REPORTS_CACHE = {"SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS": "true"}
NO_CACHE = {"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "true"}
PLAIN, CLEAN, SHORT, OTHER = "packs-plain", "packs-clean", "packs-short-head", "packs-other-target"
#: A head that guesses nothing at all.
BLIND = "packs-blind-head"
#: Of the clean endpoint: at the default of 11 this CPU gains nothing on text of low acceptance.
CLEAN_K = 5
#: Of the plain and the clean endpoint: runs that share an engine then share its steps, too.
MANY = {"SM_VLLM_MAX_NUM_SEQS": "64"}
TOOLS = {"SM_VLLM_TOOL_CALL_PARSER": "hermes", "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true"}
#: Faults of the local SageMaker (`peagle-sm local fault`), on a pack's clean endpoint.
LOCAL_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "draft-tokens": {"kind": "draft-tokens", "operation": "stream", "after_events": 3},
    "keeps-generating": {"kind": "keeps-generating", "operation": "stream"},
    "no-format": {"kind": "no-format"},
}
#: Position from which the damage shows: inside the 496 tokens of the stand-in heads' training.
FROM = 200

TEMPLATE = "efforts.jinja"  #: chat template of all endpoints
#: Before the shipped chat template, which follows unchanged; without ``reasoning_effort`` nothing is added.
#: Like GPT-OSS's it writes the effort into the prompt. The small model does not reason, whatever the prompt
#: says. So the text below takes the place of reasoning: the more effort, the more of it, and the later the
#: positions of the answer. At low effort an answer of 64 tokens ends before `FROM`, at high it begins there.
#: It is no model of real reasoning, which is the model's own text and ends when the model ends it.
_EFFORT = """\
{%- if reasoning_effort is defined and reasoning_effort -%}
{{- 'Reasoning: ' ~ reasoning_effort ~ '\\n' -}}
{%- set steps = {'medium': 4, 'high': 9}[reasoning_effort] | default(0) -%}
{%- for step in [
    'First I read the question again and write down each number in it.',
    'Then I name what is asked, and which numbers it needs.',
    'I compute one step after the other, and keep each result.',
    'I look at the units: bottles, minutes, sweets, years.',
    'I put the result back into the question to see whether it fits.',
    'Another way to the same result is a good check, so I try one.',
    'If both agree, the result is right; if not, I look for the step that is wrong.',
    'Large numbers I split into tens and ones, and add the parts.',
    'At the end I write the answer in one line, without the steps.',
] -%}
{%- if loop.index <= steps -%}{{ step ~ '\\n' }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
"""

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


def write_files(folder: Path) -> Path:
    """Write the plugin as an installed package, and the chat template; return the folder for PYTHONPATH."""
    (folder / "peagle_damage.py").write_text(_PLUGIN)
    facts = folder / "peagle_damage-1.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: peagle-damage\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "[vllm.general_plugins]\npeagle_damage = peagle_damage:register\n"
    )
    shipped = weights_dir() / "target" / "chat_template.jinja"
    (folder / TEMPLATE).write_text(_EFFORT + shipped.read_text(encoding="utf-8"))
    return folder


def specs(folder: Path) -> dict[str, EndpointSpec]:
    """Return the spec of each endpoint; ``folder`` is what `write_files` returned."""
    shared = {**REPORTS_CACHE, "SM_VLLM_CHAT_TEMPLATE": str(folder / TEMPLATE)}
    # The gate's canary refuses a damaged head at the start; the packs are to find it without.
    damaged = {**shared, "PYTHONPATH": str(folder), "PEAGLE_GATE": "off"}
    return {
        PLAIN: _named(PLAIN, "none", {**shared, **TOOLS, **MANY}),
        CLEAN: _named(CLEAN, "p-eagle", {**shared, **TOOLS, **MANY}, k=CLEAN_K),
        BLIND: _named(BLIND, "p-eagle", {**damaged, "PEAGLE_DAMAGE": "head:0"}),
        SHORT: _named(SHORT, "p-eagle", {**damaged, **NO_CACHE, "PEAGLE_DAMAGE": f"head:{FROM}"}),
        OTHER: _named(OTHER, "p-eagle", {**damaged, "PEAGLE_DAMAGE": f"target:{FROM}"}),
    }


def _named(name: str, mode: Mode, env: Mapping[str, str], k: int | None = None) -> EndpointSpec:
    fields: dict[str, Any] = spec_of(mode, k).model_dump(exclude_unset=True)
    return EndpointSpec(**{**fields, "name": name, "serving": ServingSpec(env=dict(env))})
