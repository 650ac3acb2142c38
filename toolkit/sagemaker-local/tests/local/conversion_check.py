"""Compares a converted checkpoint with transformers' own reading of the GGUF file, and answers as llama.cpp.

Runs in the trainer's environment, with gguf's packages at the end of the path::

    python conversion_check.py QUESTIONS ANSWERS

QUESTIONS is JSON as in llama_cpp_reader.py, with ``model`` (the checkpoint), ``packages`` (where gguf is) and
``texts``.
"""

import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM


def main(questions: str, answers: str) -> None:
    torch.set_num_threads(1)
    with open(questions, encoding="utf-8") as file:
        inputs = json.load(file)
    sys.path.append(inputs["packages"])
    tokenizer = AutoTokenizer.from_pretrained(inputs["model"])
    ours = AutoModelForCausalLM.from_pretrained(inputs["model"], dtype=torch.float32).eval()
    theirs = read_by_transformers(inputs["gguf"]).eval()

    def logits(model: Any, ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0]

    def largest(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        return max(float((one - other).abs().max()) for one, other in pairs)

    texts = [tokenizer.encode(text) for text in inputs["texts"]]
    as_read = [(logits(ours, ids), logits(theirs, ids)) for ids in texts]
    ours_state, theirs_state = ours.state_dict(), theirs.state_dict()
    results = {
        "ids": tokenizer(inputs["strings"], add_special_tokens=False)["input_ids"],
        "template": tokenizer.chat_template,
        "chats": [
            tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            for chat in inputs["chats"]
        ],
        "next": [logits(ours, ids)[-1].log_softmax(-1).tolist() for ids in inputs["prefixes"]],
        "same tensors": ours_state.keys() == theirs_state.keys(),
        "other weights": [
            name
            for name in ours_state
            if not torch.equal(ours_state[name], theirs_state[name].bfloat16().float())
        ],
        "positions": sum(map(len, texts)),
        "same argmax": sum(int((one.argmax(-1) == other.argmax(-1)).sum()) for one, other in as_read),
    }
    for parameter in theirs.parameters():  # not the rotary frequencies, which are computed
        parameter.data = parameter.data.bfloat16().float()
    results["differences"] = {
        "as read": largest(as_read),
        "both rounded": largest(
            [(one, logits(theirs, ids)) for (one, _), ids in zip(as_read, texts, strict=True)]
        ),
    }
    with open(answers, "w", encoding="utf-8") as file:
        json.dump(results, file)


def read_by_transformers(path: str) -> Any:
    """Return the model as transformers reads it, in float32; `from_pretrained` would need accelerate."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = LlamaConfig(**load_gguf_checkpoint(path)["config"])
    with torch.device("meta"):
        names = LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=names)["tensors"]
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
