"""What has been said, and what of it is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

Message = dict[str, str]


@dataclass(frozen=True)
class Turn:
    """A question and its answer, which may be the part of one that was stopped or cut."""

    user: str
    assistant: str


@dataclass
class Conversation:
    """Everything so far. ``left_out`` counts the oldest turns that are no longer sent."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    left_out: int = 0

    def messages(self, question: str | None = None) -> list[Message]:
        """The messages to send: system, the turns that fit, and a question to be answered."""
        found = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns[self.left_out :]:
            found += [_said("user", turn.user), _said("assistant", turn.assistant)]
        return [*found, _said("user", question)] if question is not None else found

    def transcript(self) -> list[Message]:
        """All messages, those that are no longer sent included."""
        return Conversation(self.system, self.turns).messages()

    def keep(self, question: str, answer: str) -> None:
        """Remember a turn; one without a word of an answer is not remembered."""
        if answer:
            self.turns.append(Turn(question, answer))

    def leave_out_oldest(self) -> bool:
        """Send the oldest turn no longer; False when none is left to leave out."""
        if self.left_out >= len(self.turns):
            return False
        self.left_out += 1
        return True

    def take_back(self) -> str | None:
        """Forget the last turn and return its question; None when there is none."""
        if not self.turns:
            return None
        last = self.turns.pop()
        self.left_out = min(self.left_out, len(self.turns))
        return last.user

    def reset(self) -> None:
        """Forget every turn; the system message stays."""
        self.turns.clear()
        self.left_out = 0


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
