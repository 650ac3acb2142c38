"""The small family's tokenizer: byte-level BPE, so that any text round-trips."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 2048  #: small on purpose: at H=256 a larger one would be mostly embedding
MAX_LENGTH = 8192
END, MASK, PAD = "<|endoftext|>", "<|mask|>", "<|pad|>"
#: The target is a base model that continues text; a chat is the messages, one after the other.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}{%- for part in message['content'] -%}{{ part['text'] }}{%- endfor -%}{%- endif -%}"
    "{{ '\\n' }}{%- endfor -%}"
)


def train(texts: Iterable[str], into: Path) -> PreTrainedTokenizerFast:
    """Learn the merges from ``texts`` and save a tokenizer that transformers and vLLM can load."""
    core = Tokenizer(models.BPE())
    # Digits one by one: arithmetic and indices then cost the same everywhere.
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END, MASK, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        additional_special_tokens=[MASK],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(into)
    return tokenizer
