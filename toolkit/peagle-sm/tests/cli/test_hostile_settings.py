"""Malformed and hostile settings: each is refused with a plain message, before anything is created."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.serving import Server

BASE = """name: demo
model: gpt-oss-20b
source: container
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/peagle-vllm:0.32.0
model_uri: s3://bucket/target/
head_uri: s3://bucket/head/
execution_role_arn: arn:aws:iam::123456789012:role/execution
scheduler_role_arn: arn:aws:iam::123456789012:role/scheduler
placement: {region: us-east-1, instance_types: [ml.g7e.24xlarge]}
"""
TABLE = "num_speculative_tokens_per_batch_size"

# Of `speculation`: what is written, and a part of the message.
SPECULATION = {
    f"{TABLE}: [[1, 4, 3], [4, 8, 2]]": "row 2 must begin with 5",
    f"{TABLE}: [[1, 4, 11]]": "K 11",
    f"{TABLE}: [[1, 4, yes]]": "rows of three whole numbers",
    f"{TABLE}: [[1, .nan, 3]]": "rows of three whole numbers",
    f"{TABLE}: '[[1,4,3]]'": "a list of rows",
    "num_speculative_tokens: 11": "allowed: 1 to 10",
    "num_speculative_tokens: 0": "found 0",
    "num_speculative_tokens: -3": "found -3",
    f"num_speculative_tokens: {10**30}": "allowed: 1 to 10",
    "num_speculative_tokens: yes": "found true; allowed: a whole number",
    "num_speculative_tokens: '\u0667'": "allowed: a whole number",
    "num_speculative_tokens: [3]": "allowed: a whole number",
    "mode: P-EAGLE": "Did you mean 'p-eagle'?",
    "mode: p\u2010eagle": "allowed: none, ngram, suffix, draft-model, mtp, eagle3, dflash, dspark, p-eagle",
    "mode: off": "allowed: none, ngram, suffix, draft-model, mtp, eagle3, dflash, dspark, p-eagle",
    "draft_sample_method: gumbel": "allowed: greedy, probabilistic",
    "num_speculative_token: 3": "Did you mean 'num_speculative_tokens'?",
    "'mode\u202e': none": "unknown field",
    "mode: none, mode: p-eagle": "'mode' is given twice",
}
SERVING = {
    "kv_cache_dtype: fp7": "allowed: auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2. Did you mean 'fp8'?",
    "stream_interval: 4": "goes below 'serving.extra_args'",
    "tensor_parallel_size: 10000000": "has 4 GPUs",
    "tensor_parallel_size: 3": "has 8 KV heads",
    "max_model_len: 99999999999": "at most 131072",
    "extra_args: [a]": "a mapping of names to values",
    "extra_args: '--max-num-seqs 3'": "a mapping of names to values",
    "extra_args: null": "a mapping of names to values",
    "extra_args: !!set {a}": "a mapping of names to values",
    "kv_cache_dtype: fp8, extra_args: {kv_cache_dtype: auto}": "the field serving.kv_cache_dtype sets it",
}
# Of `serving.extra_args`.
ARGUMENTS = {
    "max-num-seqs: 64": "max_num_seqs for --max-num-seqs",
    "--max-num-seqs: 64": "max_num_seqs for --max-num-seqs",
    "MAX_NUM_SEQS: 64": "small letters",
    "'max_num_seqs=64': ''": "small letters",
    "'max_num_seqs ': 1": "small letters",
    '"max_num_seqs\\n": 1': "small letters",
    "'\U0001f600': 1": "small letters",
    "'': 1": "small letters",
    "-tp: 2": "small letters",
    "speculative_config.method: ngram": "small letters",
    "'limit_mm_per_prompt.image+': 1": "small letters",
    "1: 2": "allowed: a text",
    "~: 2": "allowed: a text",
    "tp: 2": "not an argument of vLLM",
    "max_num_seq: 3": "Did you mean 'max_num_seqs'?",
    "no_such: 3": "not an argument of vLLM",
    "speculative_config: {method: ngram}": "the field speculation sets it",
    'speculative_config: \'{"method":"ngram"}\'': "the field speculation sets it",
    "compilation_config: {cudagraph_mode: pieces}": "NONE, PIECEWISE",
    "stream_interval: true": "allowed: a whole number",
    "tensor_parallel_size: 2": "the field serving.tensor_parallel_size sets it",
    "model: evil/repo": "the field model_uri sets it",
    "port: 9": "port 8080",
    "max_num_seqs: !!binary aGk=": "allowed: true or false, a number",
    "max_num_seqs: 2024-01-01": "allowed: true or false, a number",
    "max_num_seqs: null": "allowed: true or false, a number",
    "max_num_seqs: many": "found 'many'; allowed: a whole number",
    "max_num_seqs: 1.5": "found 1.5; allowed: a whole number",
    "max_num_seqs: {a: [1]}": "allowed: a whole number",
    "gpu_memory_utilization: all": "found 'all'; allowed: a number",
    "hf_overrides: {a: [2024-01-01]}": "list or mapping of these",
    "hf_overrides: {a: .nan}": "list or mapping of these",
    "hf_overrides: &r {a: *r}": "an alias is inside of what it names",
    f"hf_overrides: {'[' * 3000}{']' * 3000}": "too deeply",
    'served_model_name: "\\ud800"': "half a surrogate pair",
    'served_model_name: "a\\0"': "without NUL",
    "a: !!python/object/apply:os.system [id]": "could not determine a constructor",
    "trust_remote_code: evil": "runs Python that comes with the weights",
    "scheduler_cls: evil.Scheduler": "runs Python by its name",
    "worker_cls: evil.Worker": "runs Python by its name",
    "worker_extension_cls: evil.Extension": "runs Python by its name",
    "io_processor_plugin: evil": "runs Python by its name",
    "logits_processors: [evil.Processor]": "runs Python by its name",
    "middleware: evil.App": "runs Python by its name",
    "model_class_overrides: {A: 'evil:Model'}": "runs Python by its name",
    "distributed_executor_backend: evil.Executor": "runs Python by its name",
    "compilation_config: {backend: evil.backend}": "runs Python by its name",
    "compilation_config: {inductor_passes: {a: evil.passes}}": "runs Python by its name",
    "kv_transfer_config: {kv_connector_module_path: evil}": "runs Python by its name",
    'kv_transfer_config: \'{"kv_connector_module_path": "evil"}\'': "runs Python by its name",
    "ec_transfer_config: {ec_connector_module_path: evil}": "runs Python by its name",
    "tool_parser_plugin: /opt/ml/model/p.py": "runs a Python file",
    "reasoning_parser_plugin: /opt/ml/model/p.py": "runs a Python file",
    "log_config_file: /opt/ml/model/l.json": "names Python to run",
    "allowed_local_media_path: /": "lets requests read files",
    "config: /opt/ml/model/c.yaml": "brings arguments from a file",
    "ssl_keyfile: key.pem": "SageMaker sends plain HTTP",
    "headless: true": "starts no HTTP server",
}
# Of `serving.env`.
VARIABLES = {
    "SM_VLLM_SCHEDULER_CLS: evil.Scheduler": "runs Python by its name",
    "SM_VLLM_MIDDLEWAR: evil.App": "runs Python by its name",
    "SM_VLLM_TRUST_REMOTE: 'true'": "runs Python that comes with the weights",
    "SM_VLLM_SPECULATIVE_CONFIG: '{}'": "the field speculation sets it",
    "SM_VLLM_MODEL: evil/x": "the field model_uri sets it",
    "SM_VLLM_COMPILATION_CONFIG: '{bad'": "not JSON",
    "SM_VLLM_CONFIG: /x": "brings arguments from a file",
    "SM_VLLM_SPECULATIVE-CONFIG: '1'": "letters, digits and _",
    "'VLLM_USE_V2_MODEL_RUNNER ': '1'": "letters, digits and _",
    "VLLM_USE_V2_MODEL_RUNNER: '1'": "with mode p-eagle; allowed: 0",
    "VLLM_API_KEY: x": "protects only the paths below /v1",
    "VLLM_LOGGING_CONFIG_PATH: /opt/ml/model/l.json": "names Python to run",
    "PYTHONPATH: /opt/ml/model": "runs code from the model's folder",
    "LD_PRELOAD: /opt/ml/model/x.so": "runs code from the model's folder",
    "VLLM_SERVER_DEV_MODE: '1'": "opens routes",
    "VLLM_ALLOW_INSECURE_SERIALIZATION: '1'": "unpickles",
    f"HF_TOKEN: hf_{'a' * 34}": "looks like a key or token",
    "'A=B': '1'": "letters, digits and _",
    "'': '1'": "letters, digits and _",
    'X: "a\\0"': "without NUL",
    'X: "\\ud800"': "half a surrogate pair",
    "X: {a: 1}": "allowed: a text",
}
FILES = {
    b"\xff\xfe\x00name: x": "not UTF-8",
    b"": "a mapping of fields",
    b"- a": "a mapping of fields",
    b"name: \x00": "not YAML",
    b"name: demo\nmodel: tiny-code\nserving:\n\textra_args: {}\n": "not YAML",
    BASE.encode() + b"---\nname: x\n": "another document",
    b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghi")
    + BASE.encode(): "aliases expand to more than",
}

CASES = [
    *((f"speculation: {{{text}}}\n", said) for text, said in SPECULATION.items()),
    *((f"serving: {{{text}}}\n", said) for text, said in SERVING.items()),
    *((f"serving: {{extra_args: {{{text}}}}}\n", said) for text, said in ARGUMENTS.items()),
    *((f"serving: {{env: {{{text}}}}}\n", said) for text, said in VARIABLES.items()),
    ("speculation: {mode: none}\nspeculation: {mode: p-eagle}\n", "'speculation' is given twice"),
]


def complaint(content: bytes, said: str, folder: Path) -> str | None:
    """What is wrong with the answer to a bad spec; None if it is as it must be."""
    path = folder / "peagle.yaml"
    path.write_bytes(content)
    result = run("deploy", path, "--dry-run", "--region", "us-east-1")
    lines = result.stderr.splitlines()
    if result.exit_code not in (2, 3):
        return f"exit code {result.exit_code}: {result.stderr[:300]}"
    if said not in result.stderr:
        return f"does not say {said!r}: {result.stderr[:300]}"
    if not lines[0].startswith("error: ") or "Traceback" in result.stderr:
        return f"not an error message: {result.stderr[:300]}"
    if not any(line.strip().startswith("next: ") for line in lines):
        return f"no next step: {result.stderr[:300]}"
    return None


def test_every_bad_setting_has_a_message_before_anything_is_created(tmp_path: Path) -> None:
    files = {BASE.encode() + text.encode(): said for text, said in CASES} | FILES
    assert len(files) == len(CASES) + len(FILES)
    answers = {content: complaint(content, said, tmp_path) for content, said in files.items()}
    wrong = [f"{content[-80:]!r}: {found}" for content, found in answers.items() if found]
    assert not wrong, f"{len(wrong)} of {len(files)}:\n" + "\n".join(wrong)


# The lines "Bad input" of issue 14, each as a deploy that was confirmed: what is written, and the message.
CONFIRMED = {
    f"speculation: {{num_speculative_tokens: 7, {TABLE}: [[1, 4, 9], [5, 8, 3]]}}": "found K 9 in the row",
    "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.23.0-gpu-py312-cu130-ubuntu22.04-sagemaker\n"
    "speculation: {mode: eagle3, draft_head: tiny-code-eagle3, num_speculative_tokens: 3, "
    f"{TABLE}: [[1, 4, 3]]}}": "needs vLLM 0.24.0 or newer; the image has 0.23.0",
    "serving: {extra_args: {worker_cls: evil.Worker}}": "runs Python by its name",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", CONFIRMED)
def test_a_confirmed_deploy_of_bad_input_creates_nothing(server: Server, peagle: Run, text: str) -> None:
    path = Path("peagle.yaml")
    path.write_text(f"name: refused\nmodel: tiny-code\n{text}\n")
    result = peagle("deploy", str(path), "--yes", "--unguarded")
    assert result.exit_code in (2, 3), result.output
    assert CONFIRMED[text] in result.stderr
    assert "next: " in result.stderr
    assert "Traceback" not in result.output
    sagemaker, scheduler = server.client("sagemaker"), server.client("scheduler")
    created = [
        *sagemaker.list_endpoints(NameContains="refused")["Endpoints"],
        *sagemaker.list_endpoint_configs(NameContains="refused")["EndpointConfigs"],
        *sagemaker.list_models(NameContains="refused")["Models"],
        *(row for row in scheduler.list_schedules()["Schedules"] if "refused" in row["Name"]),
    ]
    assert created == []


@pytest.mark.parametrize(
    ("section", "variable", "value"),
    [
        ({"extra_args": {"max_num_seqs": 64}}, "SM_VLLM_MAX_NUM_SEQS", "64"),
        ({"extra_args": {"enable_prefix_caching": False}}, "SM_VLLM_NO_ENABLE_PREFIX_CACHING", "true"),
        (
            {"extra_args": {"distributed_executor_backend": "mp"}},
            "SM_VLLM_DISTRIBUTED_EXECUTOR_BACKEND",
            "mp",
        ),
        ({"env": {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}}, "LD_LIBRARY_PATH", "/usr/local/cuda/compat"),
    ],
)
def test_good_settings_reach_the_container(
    section: dict[str, object], variable: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text(BASE + yaml.safe_dump({"serving": section}))
    result = run("deploy", path, "--dry-run", "--region", "us-east-1")
    assert result.exit_code == 0, result.stderr
    (model,) = (item for item in json.loads(result.stdout) if item["operation"] == "create_model")
    assert model["parameters"]["PrimaryContainer"]["Environment"][variable] == value
