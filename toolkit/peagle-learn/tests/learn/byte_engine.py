"""An engine whose tokens are the bytes of the text, so that a test can read training files as text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from peagle_sm.core.errors import ServiceFault, SpecError, StreamCut


class ByteEngine:
    """Answers each prompt by ``answer`` of its text; counts what it was asked.

    A text with ``refuse`` is refused as invalid, one with ``break`` breaks the stream twice, ``dead`` ends
    the engine.
    """

    def __init__(self, answer: Callable[[str], str] = lambda text: f"done {len(text)}") -> None:
        self.answer = answer
        self.prompts: list[str] = []
        self._lock = threading.Lock()
        self._broken: dict[str, int] = {}

    def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        text = body["prompt"] if "prompt" in body else json.dumps(body["messages"], ensure_ascii=False)
        with self._lock:
            self.prompts.append(text)
            tries = self._broken[text] = self._broken.get(text, 0) + 1
        assert body["return_token_ids"] is True
        if "refuse" in text:
            raise SpecError("the engine refuses the request (400): too long")
        if "break" in text and tries < 3:
            raise StreamCut("the stream broke")
        if "dead" in text:
            raise ServiceFault("the endpoint is gone")
        answer = self.answer(text)
        kind = {"text": answer} if "prompt" in body else {"delta": {"content": answer}}
        return [
            {
                "prompt_token_ids": list(text.encode()),
                "choices": [{**kind, "token_ids": list(answer.encode())}],
            },
            {"choices": [{"finish_reason": "stop"}]},
        ]


def text_of_ids(ids: list[int]) -> str:
    """Decode token ids of this engine."""
    return bytes(ids).decode(errors="replace")
