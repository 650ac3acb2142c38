"""What the scheduled server writes: one answer chunk by chunk, and the account of all that was written."""

from __future__ import annotations

import hashlib
import json
import random
import time
from array import array
from dataclasses import dataclass
from typing import Any, Protocol

from sagemaker_local.wire import eventstream


@dataclass(frozen=True)
class Settings:
    """Of the server; see its command line."""

    ttft_s: float = 0.02
    gap_s: float = 0.01
    slow_gap_s: float = 0.01
    slow_every: int = 0
    spread: bool = False
    natural: bool = False
    survival: tuple[float, ...] = ()
    throttle_every: int = 0


class Wire(Protocol):
    """The connection that an answer goes out by."""

    closed: bool

    def chunk(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


class Truth:
    """All that was written: when, how many tokens, and the gap before it in its stream."""

    def __init__(self) -> None:
        self.at = array("d")
        self.tokens = array("l")
        self.gap_ms = array("d")
        self.began = array("d")
        self.ttft_ms = array("d")
        self.requests = self.drafts = self.accepted = 0
        self.per_position: list[int] = []

    def wrote(self, at: float, tokens: int, before: float | None) -> None:
        self.at.append(at)
        self.tokens.append(tokens)
        self.gap_ms.append(-1.0 if before is None else (at - before) * 1000)

    def first(self, at: float, asked: float) -> None:
        self.began.append(asked)
        self.ttft_ms.append((at - asked) * 1000)

    def between(self, since: float, until: float) -> dict[str, Any]:
        rows = [n for n, at in enumerate(self.at) if since < at <= until]
        requests = [n for n, at in enumerate(self.began) if since <= at <= until]
        return {
            "tokens": sum(self.tokens[n] for n in rows),
            "chunks": len(rows),
            "requests": self.requests,
            "first_request_at": min((self.began[n] for n in requests), default=None),
            "last_chunk_at": max((self.at[n] for n in rows), default=None),
            "gap_ms": _spread([self.gap_ms[n] for n in rows if self.gap_ms[n] >= 0]),
            "ttft_ms": _spread([self.ttft_ms[n] for n in requests]),
        }

    def accept(self, accepted: int, k: int) -> None:
        self.drafts += 1
        self.accepted += accepted
        self.per_position = self.per_position or [0] * k
        for place in range(accepted):
            self.per_position[place] += 1

    def metrics(self) -> str:
        k = len(self.per_position)
        rows = {
            "vllm:generation_tokens_total": sum(self.tokens),
            "vllm:spec_decode_num_drafts_total": self.drafts,
            "vllm:spec_decode_num_draft_tokens_total": self.drafts * k,
            "vllm:spec_decode_num_accepted_tokens_total": self.accepted,
        }
        lines = [f'{name}{{engine="0",model_name="scheduled"}} {value:.1f}' for name, value in rows.items()]
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        for place, count in enumerate(self.per_position):
            lines.append(f'{name}{{engine="0",model_name="scheduled",position="{place}"}} {count:.1f}')
        return "\n".join(lines) + "\n"


def _spread(values: list[float]) -> dict[str, float] | None:
    ordered = sorted(values)
    if not ordered:
        return None
    at = {f"p{share}": ordered[round(share / 100 * (len(ordered) - 1))] for share in (50, 95, 99)}
    return {**at, "mean": sum(ordered) / len(ordered)}


class Stream:
    """One answer on its way."""

    def __init__(
        self,
        connection: Wire,
        settings: Settings,
        truth: Truth,
        body: dict[str, Any],
        *,
        framed: bool,
    ) -> None:
        self.connection = connection
        self.truth = truth
        self.framed = framed
        self.chat = "messages" in body
        self.script: dict[str, Any] = body.get("scheduled") or {}
        self.with_ids = bool(body.get("return_token_ids"))
        prompt = json.dumps(body.get("messages") or body.get("prompt"))
        self.prompt_tokens = len(prompt.split())
        self.draws = random.Random(hashlib.sha256(prompt.encode()).digest())
        # Of their own, so that the tokens are the same with and without speculation.
        self.fates = random.Random(prompt)
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 64)
        self.length = self.draws.randint(limit // 2 + 1, limit) if settings.natural else limit
        self.finish_reason = "length" if self.length == limit else "stop"
        self.survival = settings.survival
        self.histogram = [0] * (len(self.survival) + 1)
        self.written = self.chunks = 0
        self.last: float | None = None
        self.asked = time.perf_counter()

    def step(self) -> bool:
        """Write the next chunk; False when the answer is over."""
        if self.connection.closed:
            return False
        fault = self.script.get("fault")
        if fault is not None and self.chunks >= int(self.script.get("after", 0)) and self._spoil(fault):
            return False
        ids = self._write_on()
        tokens = len(ids)
        over = self.written >= self.length
        data = b""
        if self.chat and not self.chunks:
            data += self._event({"delta": {"role": "assistant", "content": ""}})
        text = "".join(f" t{each}" for each in ids)
        message: dict[str, Any] = {"delta": {"content": text}} if self.chat else {"text": text}
        if self.with_ids:
            message["token_ids"] = ids
        data += self._event({**message, "finish_reason": self.finish_reason if over else None})
        if over and fault != "cut-after-finish":
            if fault != "no-usage":
                data += self._usage()
            data += b"data: [DONE]\n\n"
        self._write(data)
        now = time.perf_counter()
        self.truth.wrote(now, tokens, self.last)
        if self.last is None:
            self.truth.first(now, self.asked)
        self.last = now
        self.chunks += 1
        if over:
            self.connection.finish()
        return not over

    def whole(self) -> dict[str, Any]:
        """The answer to a request that is not streamed: the same tokens, all at once."""
        ids: list[int] = []
        while self.written < self.length:
            ids += self._write_on()
            self.chunks += 1
        self.truth.wrote(time.perf_counter(), len(ids), None)
        text = "".join(f" t{each}" for each in ids)
        message = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **message, "token_ids": ids, "finish_reason": self.finish_reason}
        return {"object": "text_completion", "choices": [choice], **self.usage()}

    def _write_on(self) -> list[int]:
        ids = [self.draws.randrange(1000) for _ in range(self._tokens())]
        self.written += len(ids)
        return ids

    def _tokens(self) -> int:
        if not self.chunks or not self.survival:
            return 1
        draw, k = self.fates.random(), len(self.survival)
        accepted = sum(draw < share for share in self.survival)
        self.histogram[accepted] += 1
        self.truth.accept(accepted, k)
        return min(1 + accepted, self.length - self.written)

    def _event(self, choice: dict[str, Any]) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        document = {
            "id": f"cmpl-{id(self):032x}",
            "object": kind,
            "created": 1_780_000_000,
            "model": "scheduled",
            "choices": [{"index": 0, "logprobs": None, "stop_reason": None, **choice}],
            "usage": None,
        }
        return b"data: " + json.dumps(document).encode() + b"\n\n"

    def usage(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.written,
                "total_tokens": self.prompt_tokens + self.written,
            }
        }
        if self.survival:
            steps = sum(self.histogram)
            accepted = sum(j * n for j, n in enumerate(self.histogram))
            answer["metrics"] = {
                "speculative_decoding": {
                    "num_spec_tokens": len(self.survival),
                    "num_spec_steps": steps,
                    "num_draft_tokens": steps * len(self.survival),
                    "num_accepted_draft_tokens": accepted,
                    "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
                    "acceptance_histogram": self.histogram,
                }
            }
        return answer

    def _usage(self) -> bytes:
        return (
            b"data: "
            + json.dumps({"object": "text_completion", "choices": [], **self.usage()}).encode()
            + b"\n\n"
        )

    def _write(self, data: bytes) -> None:
        self.connection.chunk(eventstream.payload_part(data) if self.framed else data)

    def _spoil(self, fault: str) -> bool:
        """Do what the script says; whether that ends the answer."""
        if fault == "error":
            self._write(b'data: {"error": {"message": "scheduled fault", "code": 500}}\n\n')
            self.connection.finish()
        elif fault == "exception":
            answer = {"Message": "scheduled fault", "ErrorCode": "StreamBroken"}
            self.connection.chunk(eventstream.exception("ModelStreamError", answer))
            self.connection.finish()
        elif fault == "cut":
            self.connection.abort()
        elif fault == "bad-json":
            self._write(b'data: {"choices": [\n\n')
            self.connection.finish()
        else:  # stall says nothing more; the other faults come at the end
            return fault == "stall"
        return True
