"""Safety filter in the loop of a stream: holds text back by N tokens and cuts it by a policy. Pure.

The filter reads tokens, not chunks. With speculation a chunk of the stream holds all tokens that one step
accepted; a filter that counts chunks as tokens therefore decides elsewhere as soon as an endpoint speculates.
What this filter delivers depends only on the tokens and their order, however they are cut into chunks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["cut", "refuse"]
REFUSAL = "I cannot help with that."  #: sent in place of an answer that a rule refuses


@dataclass(frozen=True)
class Rule:
    """Rule of a policy: a regular expression, and what happens to an answer that matches it.

    ``cut`` ends the answer where the match begins; ``refuse`` delivers `REFUSAL` after what was released.
    """

    name: str
    pattern: str
    action: Action = "cut"


@dataclass(frozen=True)
class Policy:
    """Rules, and the number of tokens that are held back until the rules have seen what follows them.

    ``hold_back`` None holds the whole answer back, as a filter that may refuse it must.
    """

    rules: tuple[Rule, ...]
    hold_back: int | None


@dataclass(frozen=True)
class FilterOutcome:
    """What a user got of one answer, and where the policy ended it.

    ``cut_token`` is the number of tokens that the filter had read when it decided; ``cut_at`` the character
    where the match begins; ``leaked`` what had been released of the match by then. ``read`` is the number of
    tokens read in all: a filter that cuts reads no further.
    """

    delivered: str
    read: int
    rule: str | None = None
    cut_token: int | None = None
    cut_at: int | None = None
    leaked: str = ""


class StreamGuard:
    """Filter of one answer: `feed` each token's text, then `finish`; `outcome` is complete after either ends.

    A rule is looked for in the whole text after each token, so a match may span any number of tokens.
    """

    def __init__(self, policy: Policy) -> None:
        """Start an answer."""
        self._policy = policy
        self._rules = [(rule, re.compile(rule.pattern)) for rule in policy.rules]
        self._held: deque[str] = deque()
        self._text = ""
        self._released = ""
        self._read = 0
        self.outcome: FilterOutcome | None = None

    @property
    def ended(self) -> bool:
        """Whether the policy has ended the answer; further tokens are not read."""
        return self.outcome is not None

    def feed(self, piece: str) -> str:
        """Read one token's text; return what is released to the user now."""
        if self.outcome is not None:
            return ""
        self._read += 1
        self._text += piece
        self._held.append(piece)
        matches = [(match.start(), rule) for rule, look in self._rules if (match := look.search(self._text))]
        if matches:
            return self._end(*min(matches, key=lambda each: each[0]))
        hold_back = self._policy.hold_back
        if hold_back is None:
            return ""
        now = "".join(self._held.popleft() for _ in range(len(self._held) - hold_back))
        self._released += now
        return now

    def finish(self) -> str:
        """Release what is held back at the end of an answer that no rule ended."""
        if self.outcome is not None:
            return ""
        now = "".join(self._held)
        self._held.clear()
        self._released += now
        self.outcome = FilterOutcome(self._released, self._read)
        return now

    def _end(self, start: int, rule: Rule) -> str:
        before = len(self._released)
        now = REFUSAL if rule.action == "refuse" else self._text[before:start]
        self._held.clear()
        self._released += now
        self.outcome = FilterOutcome(
            self._released, self._read, rule.name, self._read, start, leaked=self._text[start:before]
        )
        return now


def guarded(pieces: Sequence[str], policy: Policy) -> FilterOutcome:
    """Filter an answer whose tokens are known, such as the reference without speculation."""
    guard = StreamGuard(policy)
    for piece in pieces:
        guard.feed(piece)
        if guard.ended:
            break
    guard.finish()
    assert guard.outcome is not None
    return guard.outcome


def pieces_of(choice: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the tokens of one stream chunk with their text: (token id, text).

    The request must ask for ``return_token_ids`` and ``logprobs``. Text that earlier tokens left incomplete
    (a character of several bytes) belongs to the first token that makes text.

    Raises:
        ValueError: the chunk has text and does not say of which tokens.
    """
    ids = list(choice.get("token_ids") or ())
    texts = [str(text) for text in (choice.get("logprobs") or {}).get("tokens") or ()]
    whole = str(choice.get("text") or "")
    if len(ids) != len(texts) or (whole and not ids):
        raise ValueError(
            f"a chunk has {len(ids)} token ids, {len(texts)} token texts and the text {whole!r:.40}"
        )
    joined = "".join(texts)
    if joined != whole and ids:
        place = next((n for n, text in enumerate(texts) if text), len(texts) - 1)
        if whole.endswith(joined):
            texts[place] = whole.removesuffix(joined) + texts[place]
        else:  # the text ends before its tokens do, as at a stop string: nobody can say of which token it is
            texts = [*[""] * (len(texts) - 1), whole]
    return list(zip(ids, texts, strict=True))
