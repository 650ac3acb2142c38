"""Inputs and outputs of an AI benchmark job: specification, dataset, role, bucket, and AIPerf's archive.

The specification is that of "Set up a workload configuration for generative AI inference recommendations"
(SageMaker developer guide); the dataset is AIPerf's ``single_turn``: a prompt, and how many tokens to answer.
AIPerf takes its lines in order and its warm-up from the front, so the warm-up's prompts come first.

In the archive, requests come from ``profile_export.jsonl``, one line each; the window and AIPerf's version
from ``profile_export_aiperf.json``. Tokens are the engine's own count (``usage``) where every answer brought
it, else AIPerf's, which splits the text again with a tokenizer.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.benchmark.plan import BenchPlan, items_of, measured_of, warm_up_of
from peagle_bench.load import ClientUsage, LoadRun, Window, WorkItem
from peagle_bench.load.points import Objective, make_point, percentiles
from peagle_bench.results.records import ClientHealth, Load, Phase, PointRecord, RequestRecord
from peagle_bench.workloads import Workload, limit_of
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3 as storage
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.guard import EXECUTION_ROLE_PREFIX

# Where a job finds its input channels ("Workload specification reference", ``input_file``).
CHANNELS = "/opt/ml/input/data"
DATASET = "dataset"
TOKENIZER = "tokenizer"
PROMPTS = "prompts.jsonl"
# AIPerf sets these fields itself, from the dataset line or from the specification.
_OWN = frozenset(
    ("prompt", "messages", "max_tokens", "max_completion_tokens", "model", "stream", "stream_options")
)


def workload_spec(load: Load, plan: BenchPlan, workload: Workload, tokenizer: str) -> dict[str, Any]:
    """Build the document for ``WorkloadSpec.Inline`` of CreateAIWorkloadConfig."""
    parameters: dict[str, Any] = {
        "tokenizer": tokenizer,
        "streaming": True,
        "random_seed": plan.seed,
        "custom_dataset_type": "single_turn",
        "input_file": f"{CHANNELS}/{DATASET}/{PROMPTS}",
        "dataset_sampling_strategy": "sequential",
    }
    if load.kind == "closed":
        parameters["concurrency"] = load.concurrency
    else:
        parameters |= {"request_rate": load.rate_per_s, "request_rate_mode": "poisson"}
    requests = measured_of(plan, workload)
    if requests is not None:
        parameters["request_count"] = requests
    elif plan.seconds is not None:
        parameters["benchmark_duration"] = max(1, round(plan.seconds))  # an Integer, by AWS's reference
    warm_up = warm_up_of(plan, load)
    if warm_up:
        parameters["warmup_request_count"] = warm_up
    if workload.temperature is not None:
        parameters["extra_inputs"] = f"temperature:{workload.temperature:g}"
    goodput = _goodput(plan.objective)
    if goodput:
        parameters["goodput"] = goodput
    return {
        "benchmark": {"type": "aiperf"},
        "parameters": parameters,
        "tooling": {"api_standard": "openai"},
    }


def _goodput(objective: Objective | None) -> str:
    if objective is None:
        return ""
    limits = {
        "time_to_first_token": objective.ttft_ms,
        "inter_token_latency": objective.tpot_ms,
        "request_latency": objective.e2e_ms,
    }
    return " ".join(f"{name}:{limit:g}" for name, limit in limits.items() if limit is not None)


def dataset(load: Load, plan: BenchPlan, workload: Workload, salt: str) -> bytes:
    """Write the requests of one load as AIPerf's JSON lines: its warm-up, then the measured ones.

    Raises:
        SpecError: a request is more than a single user message.
    """
    measured = measured_of(plan, workload) or len(workload.items)
    items = islice(items_of(plan, workload, load, salt), warm_up_of(plan, load) + measured)
    return _lines(items)


def _lines(items: Iterable[WorkItem]) -> bytes:
    lines = []
    for number, item in enumerate(items):
        # AIPerf groups lines by id, so a repeated prompt needs another id.
        line: dict[str, Any] = {"session_id": f"{number}:{item.prompt_id}", "text": _text(item)}
        longest = limit_of(item)
        if longest:
            line["output_length"] = longest
        extra = {name: value for name, value in item.body.items() if name not in _OWN}
        if extra:  # the salt of the prefix cache among them
            line["extra"] = extra
        lines.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


def prompt_id(conversation: str) -> str:
    """Return the prompt id contained in AIPerf's conversation id."""
    number, colon, name = conversation.partition(":")
    return name if colon and number.isdigit() else conversation


def _text(item: WorkItem) -> str:
    prompt, messages = item.body.get("prompt"), item.body.get("messages")
    if isinstance(prompt, str):
        return prompt
    if (
        isinstance(messages, list)
        and len(messages) == 1
        and messages[0].get("role") == "user"
        and isinstance(messages[0].get("content"), str)
    ):
        return str(messages[0]["content"])
    raise SpecError(
        f"prompt {item.prompt_id} is not a single user message; a managed job sends only single messages",
        next_step="leave --managed out: the built-in client sends any request body",
    )


def notes(workload: Workload) -> list[str]:
    """List the differences from the built-in client that matter when figures are compared."""
    found = []
    if any("prompt" in item.body for item in workload.items):
        found.append("the jobs use the chat API only: completion prompts were sent as a user message")
    if any(item.then is not None for item in workload.items):
        found.append("only the first turn of each conversation was sent")
    return found


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


_ROLE_STEP = (
    "Give --role-arn: a role that sagemaker.amazonaws.com may assume, with sagemaker:InvokeEndpoint, "
    "sagemaker:InvokeEndpointWithResponseStream and sagemaker:DescribeEndpoint on the endpoint, "
    "s3:GetObject, s3:PutObject and s3:ListBucket on the bucket, and logs:CreateLogGroup, "
    "logs:CreateLogStream and logs:PutLogEvents; `peagle-sm help managed` has its commands."
)


@dataclass(frozen=True)
class JobResources:
    """Role, S3 prefix and tokenizer of a job; ``tokenizer_files`` (a directory) is uploaded for it."""

    role_arn: str
    s3: str
    tokenizer: str
    tokenizer_files: Path | None = None

    def channels(self, session: Session, base: str) -> dict[str, str]:
        """Upload the job's other inputs under ``base``; return S3 URIs by channel."""
        if self.tokenizer_files is None:
            return {}
        prefix = f"{base}/{TOKENIZER}/"
        for name in _TOKENIZER_FILES:
            file = self.tokenizer_files / name
            if file.is_file():
                storage.upload(session, f"{prefix}{name}", file.read_bytes())
        return {TOKENIZER: prefix}


def find_job_resources(
    session: Session,
    endpoint: str,
    *,
    stand_in_weights: bool,
    role_arn: str | None = None,
    s3: str | None = None,
    tokenizer: str | None = None,
) -> JobResources:
    """Choose role, bucket and tokenizer; defaults come from the endpoint and the account.

    Args:
        session: where the endpoint is.
        endpoint: its name.
        stand_in_weights: whether it serves the small weights that ship with peagle-sm.
        role_arn: a role that SageMaker may assume; None uses the execution role of the endpoint's model.
        s3: ``s3://BUCKET/PREFIX``; None uses the account's default bucket for SageMaker.
        tokenizer: a Hugging Face id, or a directory with its files; None uses the target model's.

    Raises:
        SpecError: one of them is neither given nor known, or the role is the guard's.
    """
    if s3 is not None:
        storage.split_uri(s3)
    model = _model(session, endpoint)
    name, files = _tokenizer(tokenizer, stand_in_weights, model)
    return JobResources(
        role_arn or _role(session, endpoint, model), s3 or _default_bucket(session), name, files
    )


def _model(session: Session, endpoint: str) -> dict[str, Any]:
    """Return DescribeModel's response for the endpoint's model; empty if it has none of its own."""
    facts = control.describe_endpoint(session, endpoint)
    config = control.describe_endpoint_config(session, facts.config_name) if facts else None
    if config is None or config.model_name is None:
        return {} if config is None else {"ExecutionRoleArn": config.raw.get("ExecutionRoleArn")}
    model = control.describe_model(session, config.model_name)
    return dict(model.raw) if model else {}


def _role(session: Session, endpoint: str, model: dict[str, Any]) -> str:
    role = (session.local.role_arn if session.local else None) or model.get("ExecutionRoleArn")
    if not role:
        raise SpecError(
            f"the execution role of endpoint {endpoint!r} is unknown, and an AI benchmark job needs one",
            next_step=_ROLE_STEP,
        )
    if session.local is None and str(role).rpartition("/")[2].startswith(EXECUTION_ROLE_PREFIX):
        raise SpecError(
            f"the role of endpoint {endpoint!r} is the guard's {role}: it may only read models and write "
            "logs, so a benchmark job with it would fail after its start",
            next_step=_ROLE_STEP,
        )
    return str(role)


def _default_bucket(session: Session) -> str:
    """Return the default bucket of the SageMaker SDK; create it if it does not exist."""
    bucket = f"sagemaker-{session.region}-{session.account()}"
    if not storage.exists(session, bucket):
        storage.create(session, bucket)
    return f"s3://{bucket}/peagle-sm/benchmarks"


def _tokenizer(given: str | None, stand_in: bool, model: dict[str, Any]) -> tuple[str, Path | None]:
    """Return the tokenizer for the specification, and the directory to upload, if any."""
    if given is None:
        if stand_in:
            return f"{CHANNELS}/{TOKENIZER}", stand_in_weights() / "target"
        found = _hub_id(model)
        if found is None:
            raise SpecError(
                "the tokenizer of the endpoint's model is unknown, and AIPerf needs it to count tokens",
                next_step="give --tokenizer: a Hugging Face id (org/model), or a directory with its files",
            )
        return found, None
    directory = Path(given)
    if not directory.is_dir():
        return given, None
    if not (directory / "tokenizer_config.json").is_file():
        raise SpecError(
            f"{given} has no tokenizer_config.json", next_step="give a directory with a tokenizer's files"
        )
    return f"{CHANNELS}/{TOKENIZER}", directory


def _hub_id(model: dict[str, Any]) -> str | None:
    """Find the target's Hugging Face id in the container's environment or the catalogue."""
    container = model.get("PrimaryContainer") or {}
    environment = container.get("Environment") or {}
    for name in ("SM_VLLM_MODEL", "HF_MODEL_ID"):
        value = str(environment.get(name, ""))
        if value.count("/") == 1 and not value.startswith("/"):
            return value
    text = str(container.get("ModelDataSource") or "").lower()
    for entry in load_catalog().models.values():
        if entry.hub_id and entry.jumpstart_model_id and f"/{entry.jumpstart_model_id}/" in text:
            return entry.hub_id
    return None


PROFILE = "profile_export_aiperf.json"
REQUESTS = "profile_export.jsonl"
ANSWERS = "outputs.json"
_NS = 1e9
_PHASES: dict[str, Phase] = {"warmup": "warm-up", "profiling": "measured"}
# Largest allowed lag of AIPerf, as a share of the median answer time; above it figures are not published.
_LAG_SHARE = 0.1
_LAG_FLOOR_MS = 10.0


@dataclass(frozen=True)
class Bundle:
    """AIPerf's results from a job's archive; ``answers`` are texts by conversation id."""

    profile: Mapping[str, Any]
    requests: tuple[Mapping[str, Any], ...]
    answers: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """AIPerf's version."""
        return self.profile.get("aiperf_version")


def read_bundle(archive: bytes) -> Bundle:
    """Read ``output.tar.gz``.

    Raises:
        SpecError: the archive cannot be read, or AIPerf's results are missing.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            files = {name: _member(tar, name) for name in (PROFILE, REQUESTS, ANSWERS)}
        profile = json.loads(files[PROFILE] or b"{}")
        requests = tuple(json.loads(line) for line in (files[REQUESTS] or b"").splitlines() if line.strip())
        answers = json.loads(files[ANSWERS] or b"{}").get("data", [])
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise SpecError(
            f"the job's archive cannot be read: {error}", next_step="run the job again"
        ) from error
    if not requests:
        raise SpecError(
            f"the job's archive has no {REQUESTS}: AIPerf measured nothing",
            next_step="read failure_reason.txt and logs/aiperf.log in the archive",
        )
    texts = {str(row["conversation_id"]): str(row.get("response_text", "")) for row in answers}
    return Bundle(profile, requests, texts)


def request_records(bundle: Bundle, arm: str, load: Load) -> list[RequestRecord]:
    """Return a record of each request in the order of sending, warm-up included."""
    rows = sorted(bundle.requests, key=lambda row: int(row["metadata"]["request_start_ns"]))
    zero = min(
        int(row["metadata"]["credit_issued_ns"] or row["metadata"]["request_start_ns"]) for row in rows
    )
    return [_request(row, arm, load, zero, bundle.answers) for row in rows]


def _request(
    row: Mapping[str, Any], arm: str, load: Load, zero: int, answers: Mapping[str, str]
) -> RequestRecord:
    about, metrics, error = row["metadata"], row.get("metrics") or {}, row.get("error")
    sent = (about["request_start_ns"] - zero) / _NS
    issued = ((about.get("credit_issued_ns") or about["request_start_ns"]) - zero) / _NS
    first = _figure(metrics, "time_to_first_token")
    gaps = tuple(metrics.get("inter_chunk_latency", {}).get("value") or ())
    prompt = str(about.get("conversation_id") or about.get("x_request_id"))
    text = answers.get(prompt)
    output = _whole(metrics, "usage_completion_tokens")
    return RequestRecord(
        arm=arm,
        load=load,
        prompt_id=prompt,
        phase=_PHASES.get(about.get("benchmark_phase"), "measured"),
        due_s=issued,
        sent_s=sent,
        first_s=None if first is None else sent + first / 1000,
        last_s=None if first is None else sent + (first + sum(gaps)) / 1000,
        done_s=(about["request_end_ns"] - zero) / _NS,
        input_tokens=_either(metrics, "usage_prompt_tokens", "input_sequence_length"),
        output_tokens=output if output is not None else _whole(metrics, "output_sequence_length"),
        chunks=len(gaps) + (first is not None),
        gaps_ms=gaps,
        error=None if not error else str(error.get("type") or error.get("code") or "error"),
        error_message=None if not error else str(error.get("message", "")),
        drafts=_whole(metrics, "spec_decode_steps"),
        accepted=_whole(metrics, "spec_decode_accepted_draft_tokens"),
        output_sha256=None if text is None else hashlib.sha256(text.encode()).hexdigest(),
        client_lag_ms=max(0.0, (sent - issued) * 1000),
    )


def point_record(
    bundle: Bundle,
    records: Sequence[RequestRecord],
    arm: str,
    load: Load,
    *,
    temperature: float | None,
    objective: Objective | None,
    usd_per_hour: float | None,
) -> PointRecord:
    """Build the point of one job; ``seconds`` and ``usd`` are AIPerf's window without start and warm-up."""
    measured = [record for record in records if record.phase == "measured"]
    good = [record for record in measured if record.error is None]
    seconds = _figure(bundle.profile, "benchmark_duration", "avg") or _span(measured)
    tokens = sum(record.output_tokens or 0 for record in good)
    whole = make_point(
        LoadRun(arm, load, 0, tuple(records), Window(0.0, seconds, seconds), ClientUsage((), 0.0)),
        temperature=temperature,
        objective=objective,
        acceptance=from_requests(good),
        usd_per_hour=usd_per_hour,
    )
    # AIPerf reports the length of its window, which contains all measured requests.
    return replace(
        whole,
        output_tokens=tokens,
        otps=tokens / seconds if seconds > 0 else 0.0,
        requests_per_s=len(good) / seconds if seconds > 0 else 0.0,
        client=_health(measured),
    )


def _health(measured: Sequence[RequestRecord]) -> ClientHealth:
    """Judge AIPerf by how late it sent requests; it does not report its CPU use."""
    late = percentiles(record.client_lag_ms for record in measured)
    answered = percentiles((record.done_s - record.sent_s) * 1000 for record in measured)
    lag = late.p99 if late else 0.0
    allowed = max(_LAG_FLOOR_MS, _LAG_SHARE * (answered.p50 if answered else 0.0))
    reason = f"AIPerf sent requests {lag:.0f} ms late at p99 (allowed: {allowed:.0f} ms)"
    return ClientHealth(lag <= allowed, None if lag <= allowed else reason, lag, None, None)


def _span(records: Sequence[RequestRecord]) -> float:
    return max(r.done_s for r in records) - min(r.sent_s for r in records) if records else 0.0


def _member(tar: tarfile.TarFile, name: str) -> bytes | None:
    for member in tar.getmembers():
        if member.isfile() and member.name.rpartition("/")[2] == name:
            handle = tar.extractfile(member)
            return None if handle is None else handle.read()
    return None


def _figure(metrics: Mapping[str, Any], name: str, statistic: str = "value") -> float | None:
    value = (metrics.get(name) or {}).get(statistic)
    return float(value) if isinstance(value, int | float) else None


def _whole(metrics: Mapping[str, Any], name: str) -> int | None:
    value = _figure(metrics, name)
    return None if value is None else round(value)


def _either(metrics: Mapping[str, Any], first: str, second: str) -> int | None:
    value = _whole(metrics, first)
    return value if value is not None else _whole(metrics, second)
