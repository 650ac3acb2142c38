"""Cases of the checks in `peagle_sm.core.checks.model`: model, draft head, weights and vocabulary."""

from __future__ import annotations

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks.base import Artifacts, Prefix
from peagle_sm.core.heads.layout import HeadLook
from peagle_sm.core.words import Finding
from tests.core.checks.cases import Case
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
    Case("missing-fact", TINY, severity="error", text="model_uri: found nothing"),
    Case("missing-fact", TINY, severity="error", text="head 'tiny-code-p-eagle' are missing"),
    Case("missing-fact", TINY, severity="error", text="vllm-cpu image"),
    Case(
        "missing-fact",
        TINY,
        "image: vllm-cpu:0.1.0",
        LOCAL,
        severity="error",
        text="engines of the local SageMaker: vllm-cpu, vllm-cpu:0.30.0",
    ),
    Case(
        "missing-fact",
        TINY,
        "speculation: {mode: eagle3}",
        LOCAL,
        severity="error",
        text="known for tiny-code: tiny-code-eagle3",
    ),
    Case(
        "missing-fact",
        GPT,
        "speculation: {mode: eagle3}",
        severity="error",
        text="known for gpt-oss-20b: gpt-oss-20b-eagle3",
    ),
    Case(
        "missing-fact",
        GPT.replace("gpt-oss-20b", "gemma-4-31b-it"),
        "source: container",
        severity="error",
        text="none is in the catalogue",
    ),
    Case(
        "missing-fact",
        TINY,
        "speculation: {draft_head: tiny-code-p-eagel}",
        LOCAL,
        severity="error",
        text="Did you mean 'tiny-code-p-eagle'?",
    ),
    Case(
        "missing-fact",
        TINY,
        "source: jumpstart",
        LOCAL,
        severity="error",
        text="source: found 'jumpstart'",
    ),
    Case(
        "missing-fact",
        GPT,
        "placement: {region: eu-noth-1}",
        severity="error",
        text="Did you mean 'eu-north-1'?",
    ),
    Case("missing-fact", TINY, context=LOCAL),
    Case("missing-fact", OWN_UNREAD, severity="error", text="model.config: Qwen/Qwen3-4B was not read"),
    Case("missing-fact", OWN, severity="error", text="model.config: found nothing"),
    Case("draft-target", CONTAINER, catalog=MIXTRAL, severity="error", text="MixtralForCausalLM"),
    Case("draft-target", CONTAINER, _UNKNOWN, catalog=MIXTRAL, severity="warning", text="Mixtral"),
    Case("draft-target", CONTAINER, "speculation: {mode: none}", catalog=MIXTRAL),
    Case("draft-target", CONTAINER),
    Case("own-licence", OWN, severity="warning", text="model.license: found nothing"),
    Case("own-licence", OWN.replace("name: mine", "name: mine, license: mit")),
    Case("own-licence", CONTAINER),
    Case(
        "memory",
        CONTAINER,
        "placement: {instance_types: [ml.g6.xlarge]}\nserving: {max_model_len: 131072}",
        severity="error",
        text="does not fit: needs 25.0 GB; available: 1 x 24 GB (L4) of ml.g6.xlarge",
    ),
    Case(
        "memory",
        CONTAINER,
        "placement: {instance_types: [ml.g7.2xlarge]}",
        severity="info",
        text="memory of ml.g7.2xlarge",
    ),
    Case("memory", GPT),
    Case(
        "memory",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 262144, extra_args: "
        "{kv_cache_memory_bytes: 1073741824}}",
        severity="error",
        text="kv_cache_memory_bytes: found a KV cache of 1.07 GB; one sequence of 262144",
    ),
    Case(
        "memory",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 16384, extra_args: "
        "{kv_cache_memory_bytes: 200G}}",
        severity="error",
        text="kv_cache_memory_bytes: found a KV cache of 214.75 GB",
    ),
    Case(
        "memory",
        QWEN,
        "placement: {instance_types: [ml.p5.4xlarge]}\nserving: {max_model_len: 16384, extra_args: "
        "{num_gpu_blocks_override: 1000}}",
        severity="error",
        text="num_gpu_blocks_override: found a KV cache of 1.57 GB; one sequence of 16384",
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
    Case(
        "context-length",
        TINY,
        "serving: {max_model_len: 9000}",
        LOCAL,
        severity="error",
        text="at most 8192",
    ),
    Case("context-length", TINY, "serving: {max_model_len: 8192}", LOCAL),
    Case(
        "head-length",
        CONTAINER,
        f"{_VLLM}:0.26.0-gpu-py312-cu130\nserving: {{max_model_len: 4096}}",
        fact=HeadLook(_URI, "files", (), context=2048),
        severity="error",
        text="has 2048 positions; serving.max_model_len is 4096: drafting ends at token 2048, and vLLM below "
        "0.27.0 can crash there",
    ),
    Case(
        "head-length",
        CONTAINER,
        f"{_VLLM}:0.27.0-gpu-py312-cu130\nserving: {{max_model_len: 4096}}",
        fact=HeadLook(_URI, "files", (), context=2048),
        severity="warning",
        text="drafting ends at token 2048",
    ),
    Case(
        "head-length",
        CONTAINER,
        "serving: {max_model_len: 2048}",
        fact=HeadLook(_URI, "files", (), context=2048),
    ),
    Case("head-length", CONTAINER, fact=HeadLook(_URI, "manifest", ())),
    Case(
        "head-vllm",
        CONTAINER,
        f"{_VLLM}:0.23.0-gpu-py312-cu130",
        fact=HeadLook(_URI, "files", (), vllm="0.25.0"),
        severity="error",
        text="needs vLLM 0.25.0 or later; the image has 0.23.0",
    ),
    Case(
        "head-vllm",
        CONTAINER,
        f"{_VLLM}:0.25.0-gpu-py312-cu130",
        fact=HeadLook(_URI, "files", (), vllm="0.25.0"),
    ),
    Case(
        "trained-depth",
        TINY,
        "speculation: {num_speculative_tokens: 13}",
        LOCAL,
        severity="error",
        text="found 13; allowed: 1 to 12",
    ),
    Case(
        "trained-depth",
        TINY,
        "speculation: {mode: eagle3, draft_head: tiny-code-eagle3, num_speculative_tokens: 13}",
        LOCAL,
        severity="info",
        text="tiny-code-eagle3 was trained with depth 7; found 13",
    ),
    Case(
        "trained-depth",
        CONTAINER,
        "speculation: {draft_head: mine}",
        severity="info",
        text="the trained depth of mine is not known",
    ),
    Case("trained-depth", TINY, "speculation: {num_speculative_tokens: 12}", LOCAL),
    Case(
        "head-fits",
        TINY,
        "speculation: {draft_head: gpt-oss-20b-p-eagle}",
        LOCAL,
        severity="error",
        text="a head of gpt-oss-20b",
    ),
    Case(
        "head-fits",
        TINY,
        "speculation: {draft_head: tiny-code-eagle3}",
        LOCAL,
        severity="error",
        text="an EAGLE-3 head",
    ),
    Case("head-fits", TINY, "speculation: {draft_head: tiny-code-p-eagle}", LOCAL),
    Case(
        "head-engine",
        CONTAINER,
        f"{_EAGLE3}\n{_VLLM}:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        severity="error",
        text="head gpt-oss-20b-eagle3 needs vLLM 0.19.0 or later; the image has 0.18.0",
    ),
    Case("head-engine", CONTAINER, f"{_EAGLE3}\n{_VLLM}:0.19.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    Case("licence", GPT, catalog=gated_catalog(), severity="error", text="needs true"),
    Case("licence", GPT, "accept_eula: true", catalog=gated_catalog()),
    Case(
        "ignored-speculation",
        TINY,
        "speculation: {mode: none, draft_head: x}",
        LOCAL,
        severity="info",
        text="no effect",
    ),
    Case("ignored-speculation", TINY, "speculation: {mode: none}", LOCAL),
    Case(
        "ignored-speculation",
        TINY,
        "speculation: {mode: none, draft_sample_method: greedy}",
        LOCAL,
        severity="info",
        text="speculation.draft_sample_method: 'greedy' has no effect",
    ),
    Case("licence", GPT, catalog=gated_catalog(), severity="error", text="needs true"),
    Case("licence", GPT, "accept_eula: true", catalog=gated_catalog()),
    Case(
        "head-whole",
        CONTAINER,
        fact=HeadLook(_URI, "files", (_LOST,)),
        severity="error",
        text="the head at s3://bucket/head/: d2t is missing",
    ),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", (_TOLD,))),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", ())),
    Case(
        "chat-vocabulary-file",
        CONTAINER,
        fact=_BOTH,
        severity="error",
        text="s3://bucket/target/ lacks o200k_base.tiktoken: gpt-oss-20b would start but could not chat",
    ),
    Case("chat-vocabulary-file", CONTAINER, fact=_WITH_VOCABULARY),
    Case("chat-vocabulary-file", CONTAINER, "security: {network_isolation: false}", fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, _NEWER, fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, "serving: {env: {TIKTOKEN_ENCODINGS_BASE: /opt/x}}", fact=_BOTH),
    Case("chat-vocabulary-file", CONTAINER, _UNKNOWN, fact=_BOTH),
    Case(
        "chat-vocabulary-file",
        CONTAINER,
        f"{_UNKNOWN}\n{_FOLDER}",
        fact=_BOTH,
        severity="error",
        text="s3://bucket/target/ lacks o200k_base.tiktoken",
    ),
    Case("chat-vocabulary-file", QWEN, fact=_BOTH),
    Case("chat-vocabulary-file", GPT, fact=_BOTH),
    Case("chat-vocabulary", CONTAINER, severity="info", text="vLLM 0.30.0 needs o200k_base.tiktoken"),
    Case("chat-vocabulary", CONTAINER, _NEWER),
    Case(
        "chat-vocabulary",
        CONTAINER,
        _UNKNOWN,
        severity="warning",
        text="vllm:mine is unknown; below 0.31.0, with network isolation, gpt-oss-20b needs",
    ),
    Case("chat-vocabulary", CONTAINER, f"{_UNKNOWN}\n{_FOLDER}"),
    Case("chat-vocabulary", CONTAINER, f"{_UNKNOWN}\nsecurity: {{network_isolation: false}}"),
    Case("chat-vocabulary", QWEN),
    Case("chat-vocabulary", GPT),
]
