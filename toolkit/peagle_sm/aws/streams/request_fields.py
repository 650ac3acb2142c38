"""The fields of a request that the engine reads: it ignores any other without a word. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from peagle_sm.core.errors import SpecError

_CLOSE = 0.8
# vLLM 0.32: the fields of CompletionRequest and ChatCompletionRequest (entrypoints/openai/*/protocol.py).
_COMPLETION_FIELDS = """
add_special_tokens allowed_token_ids bad_words cache_salt ec_transfer_params echo frequency_penalty
ignore_eos include_stop_str_in_output kv_transfer_params length_penalty logit_bias logprob_token_ids
logprobs max_tokens min_p min_tokens mm_payload model n presence_penalty priority prompt
prompt_embeds prompt_logprobs repetition_detection repetition_penalty request_id response_format
return_mm_kwargs return_token_ids return_token_offsets return_tokens_as_token_ids
routed_experts_prompt_start seed session_id skip_special_tokens spaces_between_special_tokens stop
stop_token_ids stream stream_interval stream_options structured_outputs suffix temperature
thinking_token_budget top_k top_p truncate_prompt_tokens truncation_side use_beam_search user
vllm_xargs watermarking
"""
COMPLETION = frozenset(_COMPLETION_FIELDS.split())
_CHAT_FIELDS = """
add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt chat_template
chat_template_kwargs continue_final_message documents ec_transfer_params echo frequency_penalty
ignore_eos include_reasoning include_stop_str_in_output kv_transfer_params length_penalty logit_bias
logprob_token_ids logprobs max_completion_tokens max_tokens media_io_kwargs messages min_p
min_tokens mm_payload mm_processor_kwargs model n parallel_tool_calls presence_penalty priority
prompt_logprobs reasoning_effort repetition_detection repetition_penalty request_id response_format
return_mm_kwargs return_prompt_text return_token_ids return_token_offsets return_tokens_as_token_ids
routed_experts_prompt_start seed session_id skip_special_tokens spaces_between_special_tokens stop
stop_token_ids stream stream_interval stream_options structured_outputs temperature
thinking_token_budget tool_choice tools top_k top_logprobs top_p truncate_prompt_tokens
truncation_side use_beam_search user vllm_xargs watermarking
"""
CHAT = frozenset(_CHAT_FIELDS.split())
# Of OpenAI's API, of clients, and of vLLM before 0.32.
_OTHERS_FIELDS = """
audio best_of function_call functions guided_choice guided_decoding_backend guided_grammar
guided_json guided_regex guided_whitespace_pattern metadata modalities prediction prompt_cache_key
safety_identifier service_tier store structural_tag verbosity web_search_options
"""
_OTHERS = frozenset(_OTHERS_FIELDS.split())
KNOWN = COMPLETION | CHAT | _OTHERS


def check_fields(document: Mapping[str, Any]) -> None:
    """Refuse a field that is most likely a misspelt one; any other unknown field is left to the engine.

    Raises:
        SpecError: with the field that was most likely meant.
    """
    for name in document:
        if not isinstance(name, str):
            raise SpecError(
                f"the request body has a field {name!r} of type {type(name).__name__}; allowed: text.",
                next_step="Write the names of fields as text.",
                details={"found": repr(name)},
            )
        if name in KNOWN:
            continue
        near = get_close_matches(name.lower(), sorted(KNOWN), n=1, cutoff=_CLOSE)
        if near:
            raise SpecError(
                f"the engine knows no field {name!r} and would ignore it; did you mean {near[0]!r}?",
                next_step=f"Write {near[0]} instead. Nothing was sent.",
                details={"found": name, "near": near},
            )


def check_question(body: Any, prompt: Any, messages: Any) -> None:
    """Refuse a body, prompt or messages of a type that cannot be one.

    Raises:
        SpecError: with the argument that was most likely meant.
    """
    if body is not None and not isinstance(body, Mapping):
        step = "Give prompt='…', messages=[…] or body={…}."
        if isinstance(body, str):
            step = "Name the argument: prompt='…' for a text."
        elif isinstance(body, list | tuple):
            step = "Name the argument: messages=[…] for a chat."
        raise _wrong_type("body", body, "a mapping with prompt or messages", step)
    if prompt is not None and not isinstance(prompt, str | list | tuple):
        raise _wrong_type("prompt", prompt, "text, or a list of texts or token ids", "Give prompt='…'.")
    if messages is None:
        return
    form = "Write messages=[{'role': 'user', 'content': '…'}]; a text goes into prompt='…'."
    if isinstance(messages, str | bytes | Mapping):
        raise _wrong_type("messages", messages, "a list of mappings with role and content", form)
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise _wrong_type(f"messages[{place}]", message, "a mapping with role and content", form)


def _wrong_type(name: str, found: Any, allowed: str, next_step: str) -> SpecError:
    kind = type(found).__name__
    return SpecError(
        f"{name}: found {kind}; allowed: {allowed}.",
        next_step=next_step,
        details={"found": kind, "allowed": allowed},
    )
