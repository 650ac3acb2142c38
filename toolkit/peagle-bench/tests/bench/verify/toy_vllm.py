"""A toy engine with vLLM's answers: a language model of 64 tokens, over plain HTTP, with faults to choose.

The next token's logits depend on the last two tokens only, by a hash. Token 0 ends an answer; token t >= 1 is
written as two characters. Everything verify asks for is there: token ids, log-probabilities, prompt
log-probabilities, stop strings, streams, JSON by schema, tool calls, the context's limit.

Faults: `runner-up` (greedy takes the second best now and then), `hot` (samples at temperature 1.6), `leaks`
(stop strings stay), `loses chunks`, `logprobs` (reported too high), `broken json`, `no tools` (refuses),
`late` (wrong beyond 300 tokens), `last token` (wrong at the last one of the context), `ends early` (three
tokens before the context's end), `dies at json`, `other text` (the ids are right), `swaps` (the second and
the third best sample), `residual` (speculates, and takes the target's distribution for the residual),
`speculates` (and does it right), `ignores top_p` and so on; `no min_p` (refused as vLLM 0.32 does with
speculation), `refuses top_p`.

What it samples without a seed depends on its own seed and on how often it was asked the same: threads change
nothing. Two engines that stand for two samplers get two seeds.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any

VOCABULARY, CONTEXT, END = 64, 512, 0
LETTERS = "abcdefghijklmnop"


def word(token: int) -> str:
    return LETTERS[token // 16] + LETTERS[token % 16]


@lru_cache(maxsize=65536)
def logprobs(last: int, before: int) -> tuple[float, ...]:
    digest = hashlib.shake_128(f"{last}/{before}".encode()).digest(2 * VOCABULARY)
    reach = 200 if digest[1] < 64 else 9  # after some words the next one is sure
    logits = [int.from_bytes(digest[2 * t : 2 * t + 2]) / 65536 * reach for t in range(VOCABULARY)]
    logits[END] -= 5 if reach == 9 else 200
    whole = math.log(sum(math.exp(value) for value in logits))
    return tuple(value - whole for value in logits)


@lru_cache(maxsize=65536)
def ranking(row: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(VOCABULARY), key=lambda token: -row[token]))


@lru_cache(maxsize=65536)
def shares(row: tuple[float, ...], heat: float) -> tuple[float, ...]:
    return tuple(accumulate(math.exp(value / heat) for value in row))


def value_of(schema: Mapping[str, Any], rng: random.Random) -> Any:
    """A value that a schema of `verify.forms` allows."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return value_of(rng.choice(schema["anyOf"]), rng)
    kind = schema["type"]
    if kind == "array":
        return [
            value_of(schema["items"], rng) for _ in range(rng.randint(schema["minItems"], schema["maxItems"]))
        ]
    if kind == "object":
        return {name: value_of(each, rng) for name, each in schema["properties"].items()}
    if kind == "integer":
        return rng.randint(schema["minimum"], schema["maximum"])
    return {"boolean": rng.random() < 0.5, "null": None}[kind]


class Engine:
    def __init__(self, fault: str = "", seed: int = 0) -> None:
        self.fault = fault
        self.seed = seed
        self.same: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.asked = 0
        self.dead = False

    def tokens_of(self, body: Mapping[str, Any]) -> list[int]:
        prompt = body.get("prompt")
        if prompt is None:
            prompt = "".join(message["content"] for message in body["messages"])
        return [1 + ord(c) % 63 for c in prompt] if isinstance(prompt, str) else list(prompt)

    def choose(self, row: tuple[float, ...], body: Mapping[str, Any], rng: random.Random, length: int) -> int:
        ranked = ranking(row)
        if body.get("temperature", 1.0) == 0:
            wrong = (
                (self.fault == "runner-up" and length % 17 == 0)
                or (self.fault == "late" and length > 300)
                or (self.fault == "last token" and length == CONTEXT - 1)
            )
            return ranked[1] if wrong and ranked[1] != END else ranked[0]
        weights = self.weights(row, body)
        if self.fault in ("residual", "speculates"):
            return self.speculated(row, weights, rng)
        chosen = rng.choices(range(VOCABULARY), weights)[0]
        if self.fault == "swaps" and chosen in ranked[1:3]:
            return ranked[3 - ranked.index(chosen)]
        return chosen

    def weights(self, row: tuple[float, ...], body: Mapping[str, Any]) -> list[float]:
        by_name = {name: value for name, value in body.items() if self.fault != f"ignores {name}"}
        heat = 1.6 if self.fault == "hot" else by_name.get("temperature", 1.0)
        shares = [math.exp(value / heat) for value in row]
        whole = sum(shares)
        shares = [share / whole for share in shares]
        ranked, before = ranking(row), 0.0
        for rank, token in enumerate(ranked):
            cut = by_name.get("top_k") and rank >= by_name["top_k"]
            cut = cut or before >= by_name.get("top_p", 1.0)
            cut = cut or shares[token] < by_name.get("min_p", 0.0) * shares[ranked[0]]
            before += shares[token]
            if cut and rank:
                shares[token] = 0.0
        return shares

    def speculated(self, row: tuple[float, ...], target: list[float], rng: random.Random) -> int:
        """Rejection sampling of one draft token from a draft that errs by up to 1.2 nats, either way."""
        errors = random.Random(row[0])
        draft = [share * math.exp(errors.uniform(-1.2, 1.2)) for share in target]
        whole, own = sum(draft), sum(target)
        draft, target = [share / whole for share in draft], [share / own for share in target]
        token = rng.choices(range(VOCABULARY), draft)[0]
        if rng.random() < target[token] / draft[token]:
            return token
        residual = [max(0.0, t - d) for t, d in zip(target, draft, strict=True)]
        return rng.choices(range(VOCABULARY), target if self.fault == "residual" else residual)[0]

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = self.tokens_of(body)
        room = CONTEXT - len(prompt)
        if body["max_tokens"] > CONTEXT or room < 1:
            raise ValueError(f"This model's maximum context length is {CONTEXT} tokens.")
        if self.fault == "no min_p" and body.get("min_p"):
            raise ValueError(
                "The min_p and logit_bias sampling parameters "
                "are not yet supported with speculative decoding."
            )
        if self.fault == "refuses top_p" and body.get("top_p", 1.0) < 1:
            raise ValueError("top_p is not allowed here")
        demanded = self.demanded(body)
        if demanded is not None:
            return demanded
        seed = body.get("seed")
        rng = self.unseeded(body) if seed is None else random.Random(seed)
        ids: list[int] = []
        reason, stop_reason, text = "length", None, ""
        early = 3 if self.fault == "ends early" else 0
        for _ in range(min(body["max_tokens"], room - early)):
            so_far = [*prompt[-2:], *ids]
            row = logprobs(so_far[-1], so_far[-2] if len(so_far) > 1 else 0)
            ids.append(self.choose(row, body, rng, len(prompt) + len(ids)))
            if ids[-1] == END:
                reason = "stop"
                break
            text += word(ids[-1])
            stop = next((s for s in body.get("stop") or () if s in text), None)
            if stop is not None:
                at = text.find(stop)
                keep = len(stop) if body.get("include_stop_str_in_output") else 0
                text = text[: at + keep + (2 if self.fault == "leaks" else 0)]
                reason, stop_reason = "stop", stop
                break
        if self.fault == "other text":
            text = text.replace("ab", "a b", 1) if "ab" in text else f"{text[:-1]} "
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "stop_reason": stop_reason}
        choice |= {"text": text, "token_ids": ids}
        if body.get("logprobs"):
            choice["logprobs"] = self.reported(prompt, ids)
        if body.get("prompt_logprobs"):
            choice["prompt_logprobs"] = self.scored(prompt)
        whole: dict[str, Any] = {"choices": [choice], "usage": {"completion_tokens": len(ids)}}
        (choice if "prompt" in body else whole)["prompt_token_ids"] = prompt  # as vLLM's two APIs do
        return whole

    def unseeded(self, body: Mapping[str, Any]) -> random.Random:
        request = json.dumps(body, sort_keys=True)
        with self.lock:
            self.same[request] += 1
            return random.Random(f"{self.seed} {self.same[request]} {request}")

    def demanded(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        schema = body.get("response_format")
        if schema is None and not body.get("tools"):
            return None
        if schema is not None:
            self.dead = self.dead or self.fault == "dies at json"
            message: dict[str, Any] = {"content": self.value(schema["json_schema"]["schema"])}
        elif self.fault == "no tools":
            raise ValueError("tool choice requires --tool-call-parser to be set")
        else:
            tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
            choice = body["tool_choice"]
            name = next(iter(tools)) if isinstance(choice, str) else choice["function"]["name"]
            call = {"name": name, "arguments": self.value(tools[name])}
            message = {"content": None, "tool_calls": [{"function": call}]}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}}

    def value(self, schema: Mapping[str, Any]) -> str:
        value = json.dumps(value_of(schema, random.Random(0)))
        return value[:-1] if self.fault == "broken json" else value

    def reported(self, prompt: list[int], ids: list[int]) -> dict[str, Any]:
        fields: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        for at, token in enumerate(ids):
            so_far = [*prompt, *ids[:at]]
            row = logprobs(so_far[-1], so_far[-2])
            shift = 0.05 if self.fault == "logprobs" else 0.0
            best = ranking(row)[:2]
            fields["tokens"].append(f"token_id:{token}")
            fields["token_logprobs"].append(row[token] + shift)
            fields["top_logprobs"].append({f"token_id:{t}": row[t] + shift for t in {*best, token}})
        return fields

    def scored(self, prompt: list[int]) -> list[Any]:
        entries: list[Any] = [None]
        for at in range(1, len(prompt)):
            row = logprobs(prompt[at - 1], prompt[at - 2] if at > 1 else 0)
            ranked = ranking(row)
            shown = dict.fromkeys([*ranked[:5], prompt[at]])
            entries.append({str(t): {"logprob": row[t], "rank": 1 + ranked.index(t)} for t in shown})
        return entries

    def events(self, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
        choice = answer["choices"][0]
        message = choice.get("message")
        if message is not None:
            calls = [{"index": 0, **call} for call in message.get("tool_calls") or ()]
            yield {"choices": [{"delta": {"content": message["content"], "tool_calls": calls}}]}
        text, ids = choice.get("text", ""), choice.get("token_ids") or []
        for at in range(0, len(ids), 3):
            if self.fault == "loses chunks" and at == 6:
                continue
            end = len(text) if at + 3 >= len(ids) else 2 * at + 6
            yield {"choices": [{"text": text[2 * at : end], "token_ids": ids[at : at + 3]}]}
        last = {
            "finish_reason": choice["finish_reason"],
            "stop_reason": choice.get("stop_reason"),
            "text": "",
        }
        yield {"choices": [last]}
        yield {"choices": [], "usage": answer["usage"]}


@contextmanager
def serving(fault: str = "", seed: int = 0) -> Iterator[tuple[str, Engine]]:
    """The URL of a toy engine, and the engine."""
    engine = Engine(fault, seed)

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # one packet an answer

        def do_GET(self) -> None:
            self.send(200, {"data": [{"id": "toy", "max_model_len": CONTEXT}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.asked += 1
            if engine.dead:
                self.send(500, {"error": {"message": "EngineDeadError"}})
                return
            try:
                answer = engine.answer(body)
            except ValueError as error:
                self.send(400, {"error": {"message": str(error)}})
                return
            if not body.get("stream"):
                self.send(200, answer)
                return
            events = [f"data: {json.dumps(event)}\n\n" for event in engine.events(answer)]
            self.send(200, "".join([*events, "data: [DONE]\n\n"]))

        def send(self, status: int, content: Any) -> None:
            raw = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # of five, a sixth connection at once would wait a second for its turn

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", engine
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
