"""Reads a GGUF file with llama.cpp: token ids, the chat template, rendered chats, probable next tokens.

Runs in the environment of requirements/llama-cpp.lock::

    python -I llama_cpp_reader.py QUESTIONS ANSWERS

QUESTIONS is JSON: ``gguf`` (a path), ``strings``, ``chats`` (lists of messages), ``prefixes`` (lists of token
ids).
"""

import json
import sys
import urllib.request
from typing import Any

import xllamacpp

TOP = 50
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(questions: str, answers: str) -> None:
    with open(questions, encoding="utf-8") as file:
        inputs = json.load(file)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = inputs["gguf"]
    parameters.n_ctx = 1024
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    server = xllamacpp.Server(parameters)

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server.listening_address + path, data)
        with _opener.open(request) as answer:
            return json.load(answer)

    def next_token(ids: list[int]) -> list[tuple[int, float]]:
        settings = {"n_predict": 1, "n_probs": TOP, "temperature": -1, "cache_prompt": False}
        answer = ask("/completion", {"prompt": ids, **settings})
        rows = answer["completion_probabilities"][0]["top_logprobs"]
        return [(row["id"], row["logprob"]) for row in rows]

    def ids(text: str) -> list[int]:
        settings = {"add_special": False, "parse_special": True}
        return list(ask("/tokenize", {"content": text, **settings})["tokens"])

    results = {
        "ids": [ids(text) for text in inputs["strings"]],
        "template": ask("/props")["chat_template"],
        "chats": [ask("/apply-template", {"messages": chat})["prompt"] for chat in inputs["chats"]],
        "next": [next_token(prefix) for prefix in inputs["prefixes"]],
    }
    with open(answers, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
