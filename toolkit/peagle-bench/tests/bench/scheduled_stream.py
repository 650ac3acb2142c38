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
    natural: bool = False
    survival: tuple[float, ...] = ()


class Wire(Protocol):
    """The connection that an answer goes out by."""

    closed: bool

    def chunk(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


class Truth:
    """All that was written: when, and how many tokens."""

    def __init__(self) -> None:
        self.at = array("d")
        self.tokens = array("l")

    def wrote(self, at: float, tokens: int) -> None:
        self.at.append(at)
        self.tokens.append(tokens)

    def between(self, since: float, until: float) -> dict[str, int]:
        rows = [n for n, at in enumerate(self.at) if since < at <= until]
        return {"tokens": sum(self.tokens[n] for n in rows), "chunks": len(rows)}


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
        if over:
            data += (b"" if fault == "no-usage" else self._usage()) + b"data: [DONE]\n\n"
        self._write(data)
        self.truth.wrote(time.perf_counter(), tokens)
        self.chunks += 1
        if over:
            self.connection.finish()
        return not over

    def _write_on(self) -> list[int]:
        ids = [self.draws.randrange(1000) for _ in range(self._tokens())]
        self.written += len(ids)
        return ids

    def _tokens(self) -> int:
        if not self.chunks or not self.survival:
            return 1
        draw = self.fates.random()
        accepted = sum(draw < share for share in self.survival)
        self.histogram[accepted] += 1
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
