"""The container's environment: what the AWS image turns into vLLM's arguments."""

from __future__ import annotations

from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.speculation import SpeculativeConfig

MODEL_MOUNT = "/opt/ml/model"
CHANNEL_MOUNT = "/opt/ml/additional-model-data-sources"
SPECULATIVE_CONFIG = "SM_VLLM_SPECULATIVE_CONFIG"
REQUEST_METRICS = "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS"
AUTO_RECOVERY = "PROCESS_AUTO_RECOVERY"
# Read by openai-harmony; JumpStart's spec of gpt-oss-20b sets it in the same way.
VOCABULARY_FOLDER = "TIKTOKEN_ENCODINGS_BASE"
# Read by the gate in container/, which AWS's images do not have: where its figures of drafting go.
GATE_NAMESPACE = "PEAGLE_GATE_NAMESPACE"

# Which field of the spec decides a variable; writing it into serving.env as well would make two truths.
OWNED = {
    SPECULATIVE_CONFIG: "speculation",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "serving.tensor_parallel_size",
    "SM_VLLM_DATA_PARALLEL_SIZE": "serving.data_parallel_size",
    "SM_VLLM_MAX_MODEL_LEN": "serving.max_model_len",
    "SM_VLLM_MODEL": "model_uri",
}


def acceptance_namespace(endpoint: str) -> str:
    """Return the CloudWatch namespace of an endpoint's figures; its name in it spares a dimension."""
    return f"peagle-sm/{endpoint}"


def speculative_config(draft: Draft) -> SpeculativeConfig | None:
    """Return vLLM's speculative configuration, None without speculation."""
    if not draft.speculating or draft.num_speculative_tokens is None:
        return None
    beside = draft.head_beside_target
    return SpeculativeConfig(
        method="eagle3",
        model=f"{MODEL_MOUNT}/{beside}" if beside else f"{CHANNEL_MOUNT}/{draft.channel}",
        num_speculative_tokens=draft.num_speculative_tokens,
        parallel_drafting=draft.mode == "p-eagle",
    )


def _base(draft: Draft) -> dict[str, str]:
    if draft.jumpstart is None:
        return {"SM_VLLM_MODEL": MODEL_MOUNT}
    return draft.jumpstart.environment_for(draft.instance_types[0])


def _published_by_aws(draft: Draft) -> bool:
    return draft.image is not None and draft.catalog.published_by_aws(draft.image.uri)


def environment(draft: Draft) -> dict[str, str]:
    """Return the environment, sorted by name; `serving.env` has the last word."""
    serving = draft.spec.serving
    values = _base(draft)
    values["SM_VLLM_TENSOR_PARALLEL_SIZE"] = str(serving.tensor_parallel_size)
    if serving.data_parallel_size > 1:
        values["SM_VLLM_DATA_PARALLEL_SIZE"] = str(serving.data_parallel_size)
    if draft.max_model_len is not None:
        values["SM_VLLM_MAX_MODEL_LEN"] = str(draft.max_model_len)
    config = speculative_config(draft)
    if config is not None:
        values[SPECULATIVE_CONFIG] = config.to_json()
        floor = draft.catalog.images.flags[REQUEST_METRICS].version
        # the engine refuses to start when this is set without speculation
        if draft.image is not None and draft.image.at_least(floor):
            values[REQUEST_METRICS] = "summary"
        if draft.source == "container" and not _published_by_aws(draft):
            values[GATE_NAMESPACE] = acceptance_namespace(draft.spec.name)
    if draft.needed_vocabulary is not None:
        values[VOCABULARY_FOLDER] = MODEL_MOUNT
    if draft.image is not None and draft.catalog.images.loses_quotes(draft.image):
        values[AUTO_RECOVERY] = "false"
    return dict(sorted({**values, **serving.env}.items()))
