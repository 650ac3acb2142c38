"""The split of prompts: no held-out conversation, repeat or near-duplicate is in the training set."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn.core.conversations import (
    NEAR,
    LearnPrompt,
    _alike,
    first_turn,
    group,
    near_pairs,
    shingles,
    similarity,
    split,
    user_text,
    whole,
    without_repeats,
)
from peagle_sm.core.errors import SpecError

TEXT = "def return class value list for in range open file read write sum add name key map"
WORDS = TEXT.split()


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def mixture(seed: int, count: int) -> list[LearnPrompt]:
    """Texts, chats of several turns, repeats, near-duplicates and continued texts, in a random order."""
    rng = random.Random(seed)
    bodies: list[dict[str, object]] = []
    for _ in range(count):
        kind = rng.randrange(5)
        text = words(rng, rng.randint(3, 60))
        if kind == 0 or not bodies:
            bodies.append({"prompt": text})
        elif kind == 1:
            lines = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": text}]
            for turn in range(rng.randint(1, 3)):
                bodies.append({"messages": [*lines]})
                lines += [
                    {"role": "assistant", "content": words(rng, 8)},
                    {"role": "user", "content": f"{turn} {words(rng, 9)}"},
                ]
        elif kind == 2:
            bodies.append(dict(rng.choice(bodies)))
        elif kind == 3:
            parts = user_text(rng.choice(bodies)).split()
            if parts:
                parts[rng.randrange(len(parts))] = rng.choice(WORDS)
            bodies.append({"prompt": " ".join(parts)})
        else:
            bodies.append({"prompt": user_text(rng.choice(bodies)) + " " + text})
    rng.shuffle(bodies)
    return [LearnPrompt(str(number), body) for number, body in enumerate(bodies)]


def check_no_relatives(learned: list[LearnPrompt], measured: list[LearnPrompt]) -> None:
    for one in learned:
        for other in measured:
            assert similarity(shingles(user_text(one.body)), shingles(user_text(other.body))) < NEAR
            assert first_turn(one.body) is None or first_turn(one.body) != first_turn(other.body)


def check_not_begun(first: LearnPrompt, second: LearnPrompt) -> None:
    """A text that is long enough to count is not the start of the other one."""
    if not first.is_chat and not second.is_chat and len(user_text(first.body)) >= 64:
        assert not user_text(second.body).startswith(user_text(first.body))


@given(st.integers(0, 10**6), st.integers(12, 60), st.floats(0.05, 0.9))
def test_no_relative_of_a_held_out_prompt_is_in_training(seed: int, count: int, share: float) -> None:
    prompts = mixture(seed, count)
    general = [
        LearnPrompt("g", prompts[0].body),
        LearnPrompt("h", {"prompt": words(random.Random(seed), 40)}),
    ]
    try:
        lines = split(prompts, share, seed, general)
    except SpecError:  # too few conversations
        return
    train = [prompt for each in lines.train for prompt in each.prompts]
    held_out = [prompt for each in lines.held_out for prompt in each.prompts]
    assert {each.key for each in lines.train}.isdisjoint(each.key for each in lines.held_out)
    check_no_relatives(train, [*held_out, *general])
    for one in train:
        for other in held_out:
            for first, second in ((one, other), (other, one)):
                check_not_begun(first, second)
    assert all(each.prompts for each in (*lines.train, *lines.held_out))


@given(st.integers(0, 10**6), st.integers(8, 40))
def test_the_split_of_a_conversation_does_not_depend_on_the_order(seed: int, count: int) -> None:
    prompts = mixture(seed, count)
    turned = prompts[::-1]
    try:
        one, other = split(prompts, 0.3, 7), split(turned, 0.3, 7)
    except SpecError:
        return
    assert {each.key for each in one.held_out} == {each.key for each in other.held_out}


@given(
    st.lists(st.frozensets(st.integers(0, 30), max_size=12), max_size=25), st.sampled_from([0.5, 0.8, 1.0])
)
def test_the_join_finds_exactly_the_near_pairs(sets: list[frozenset[int]], threshold: float) -> None:
    names = {tuple(sorted(pair)) for pair in near_pairs([whole(one) for one in sets], threshold)}
    full = [place for place, one in enumerate(sets) if one]
    wanted = {
        (one, other)
        for one, other in combinations(full, 2)
        if similarity(sets[one], sets[other]) >= threshold
    }
    assert {pair for pair in names if set(pair) <= set(full)} == wanted


def test_repeats_go_and_later_turns_stay() -> None:
    ask = {"role": "user", "content": "How do I sort a list of dates in Python?"}
    answer = {"role": "assistant", "content": "Use sorted()."}
    prompts = [
        LearnPrompt("a", {"messages": [ask], "max_tokens": 5}),
        LearnPrompt("b", {"messages": [ask], "max_tokens": 9, "temperature": 1}),
        LearnPrompt("c", {"messages": [ask, answer, {"role": "user", "content": "And in reverse?"}]}),
        LearnPrompt("d", {"messages": [{"role": "user", "content": "What is a monad in plain words?"}]}),
    ]
    kept = [each.id for each in without_repeats(prompts)]
    assert kept == ["a", "c", "d"]
    assert sorted(len(each.prompts) for each in group(prompts).conversations) == [1, 2]


@given(st.integers(0, 10**6), st.integers(12, 40), st.integers(8, 40), st.floats(0.05, 0.9))
def test_general_prompts_that_are_trained_on_have_no_relative_that_is_measured(
    seed: int, count: int, general: int, share: float
) -> None:
    others = [LearnPrompt(f"general/{each.id}", each.body) for each in mixture(seed + 1, general)]
    prompts = [
        *mixture(seed, count),
        LearnPrompt("begins", {"prompt": user_text(others[0].body) + words(random.Random(seed), 60)}),
    ]
    try:
        lines = split(prompts, 0.5, seed, others, share)
    except SpecError:  # too few conversations
        return
    learned = [prompt for each in lines.general_train for prompt in each.prompts]
    measured = [*lines.general, *(prompt for each in lines.held_out for prompt in each.prompts)]
    assert {each.id for each in learned}.isdisjoint(each.id for each in measured)
    check_no_relatives(learned, measured)
    for one in learned:
        for other in measured:
            check_not_begun(one, other)


def test_the_general_set_is_measured_whole_unless_a_share_is_asked_for() -> None:
    rng = random.Random(5)
    prompts, general = (
        [LearnPrompt(f"{name}{number}", {"prompt": words(rng, 30)}) for number in range(40)] for name in "pg"
    )
    assert split(prompts, 0.2, 0, general).general == tuple(general)
    lines = split(prompts, 0.2, 0, general, 0.5)
    assert 10 <= sum(len(each.prompts) for each in lines.general_train) <= 30
    assert len(lines.general) + sum(len(each.prompts) for each in lines.general_train) == 40
    with pytest.raises(SpecError, match=r"data\.general_trained: the general prompts have 3 conversations"):
        split(prompts, 0.2, 0, general[:3], 0.5)


def test_a_conversation_that_begins_as_a_general_one_is_neither_trained_on_nor_held_out() -> None:
    rng = random.Random(4)
    ask = {"role": "user", "content": words(rng, 8)}

    def chat(name: str) -> LearnPrompt:
        lines = [ask, {"role": "assistant", "content": words(rng, 30)}]
        return LearnPrompt(name, {"messages": [*lines, {"role": "user", "content": words(rng, 30)}]})

    prompts = [LearnPrompt(str(number), {"prompt": words(rng, 30)}) for number in range(20)]
    lines = split([*prompts, chat("mine"), chat("mine too")], 0.2, 0, general=[chat("g")])
    assert lines.like_general == 2
    assert {each.id for one in (*lines.train, *lines.held_out) for each in one.prompts} == {
        each.id for each in prompts
    }


def test_a_long_conversation_is_not_compared_with_itself() -> None:
    rng = random.Random(1)
    many = [
        LearnPrompt(str(number), {}, turns=tuple(words(rng, 40) for _ in range(64))) for number in range(3)
    ]
    assert list(_alike(many)) == []
    begun = LearnPrompt("begun", {}, turns=many[1].turns[:50])  # a turn of another one: still found
    assert {(1, 3, False)} <= {(*sorted(pair[:2]), pair[2]) for pair in _alike([*many, begun])}
