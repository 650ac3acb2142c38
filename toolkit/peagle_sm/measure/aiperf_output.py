"""From the archive that AIPerf leaves to the records of a results file. Pure.

Requests come from ``profile_export.jsonl``, one line each; the window and AIPerf's version from
``profile_export_aiperf.json``. Tokens are the engine's own count (``usage``) where every answer brought it,
else AIPerf's, which splits the text again with a tokenizer.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.acceptance import from_requests
from peagle_sm.measure.load import ClientUsage, LoadRun, Window
from peagle_sm.measure.load.points import Objective, make_point, percentiles
from peagle_sm.measure.records import ClientHealth, Load, Phase, PointRecord, RequestRecord

PROFILE = "profile_export_aiperf.json"
REQUESTS = "profile_export.jsonl"
ANSWERS = "outputs.json"
_NS = 1e9
_PHASES: dict[str, Phase] = {"warmup": "warm-up", "profiling": "measured"}
# AIPerf's own lag may be so much of the median answer before its figures are not to be published.
_LAG_SHARE = 0.1
_LAG_FLOOR_MS = 10.0


@dataclass(frozen=True)
class Bundle:
    """What an archive holds of interest; ``answers`` are texts by conversation id."""

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
        SpecError: it is no such archive, or AIPerf's results are not in it.
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
            f"the job's archive holds no {REQUESTS}: AIPerf measured nothing",
            next_step="look at failure_reason.txt and logs/aiperf.log in it",
        )
    texts = {str(row["conversation_id"]): str(row.get("response_text", "")) for row in answers}
    return Bundle(profile, requests, texts)


def request_records(bundle: Bundle, arm: str, load: Load) -> list[RequestRecord]:
    """Every request in the order in which it was sent, warm-up included."""
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
    """The point of one job; ``seconds`` and ``usd`` are of AIPerf's window, without its start and warm-up."""
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
    # AIPerf's window is as long as it says, and holds all of the measured requests.
    return replace(
        whole,
        output_tokens=tokens,
        otps=tokens / seconds if seconds > 0 else 0.0,
        requests_per_s=len(good) / seconds if seconds > 0 else 0.0,
        client=_health(measured),
    )


def _health(measured: Sequence[RequestRecord]) -> ClientHealth:
    """AIPerf tells how late it sent, and nothing of its processors."""
    late = percentiles(record.client_lag_ms for record in measured)
    answered = percentiles((record.done_s - record.sent_s) * 1000 for record in measured)
    lag = late.p99 if late else 0.0
    allowed = max(_LAG_FLOOR_MS, _LAG_SHARE * (answered.p50 if answered else 0.0))
    reason = f"AIPerf sent {lag:.0f} ms late at the 99th percentile (allowed: {allowed:.0f} ms)"
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
