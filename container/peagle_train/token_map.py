"""The tokens that a head from nothing can draft: the most frequent ones of what it learns."""

from collections import Counter
from typing import Protocol

from peagle_train.dataset import Documents
from peagle_train.heads import TOKEN_MAP
from peagle_train.plan import Plan


class Rows(Protocol):
    """Documents by number: token ids, and the mask of those that are learned."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> tuple[list[int], list[int]]: ...


def most_frequent(documents: Rows, size: int, vocab: int) -> list[int]:
    """Return ``size`` token ids in rising order: the most frequent learned ones, then the lowest ids."""
    counts: Counter[int] = Counter()
    for number in range(len(documents)):
        ids, mask = documents[number]
        counts.update(token for token, learned in zip(ids, mask, strict=True) if learned)
    ranked = sorted(range(vocab), key=lambda token: (-counts[token], token))
    return sorted(ranked[:size])


def write_token_map(plan: Plan) -> None:
    """Write the library's file of draft tokens, where it looks for that of a head to start from."""
    import torch

    size = plan.settings.draft_vocab_size
    assert size is not None
    training, vocab = plan.training, plan.target.vocab
    documents = Documents(training.folder, training.files, vocab, plan.settings.sequence_length)
    chosen = torch.tensor(most_frequent(documents, size, vocab), dtype=torch.long)
    plan.warm_start.mkdir(parents=True, exist_ok=True)
    torch.save({"selected_token_ids": chosen, "target_vocab_size": vocab}, plan.warm_start / TOKEN_MAP)
