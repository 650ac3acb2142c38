"""The program of the jobs: the same split over any shards, and what damaged files and few prompts say."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_learn.core.conversations import (
    NEAR,
    LearnPrompt,
    first_turn,
    shingles,
    similarity,
    split_prompts,
    user_text,
)
from peagle_learn.core.processing.lines import (
    GENERAL_FILE,
    GENERAL_TRAIN_FILE,
    HELD_OUT_FILE,
    MANIFEST_FILE,
    SCHEMA,
    TRAIN_FILE,
    read_split,
)
from peagle_learn.processing.job import DONE, FAILED, MISTAKEN, ROOT_VARIABLE, Folders, main, read, split
from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import MOST_VALUES
from peagle_sm.core.slice_values import LONGEST_VALUE
from tests.learn.core.test_conversations import mixture, words
from tests.traffic.planted import pieces, planted

SETTINGS: dict[str, Any] = {
    "schema": SCHEMA,
    "sources": {"s3://b/p/": "hash"},
    "prompts": 1,
    "general": 0,
    "max_tokens": 32,
    "held_out": 0.3,
    "general_trained": 0.0,
    "limit": None,
    "seed": 7,
    "target": {"has_template": True, "control_tokens": None, "vocab_size": None},
}
FILES = (TRAIN_FILE, HELD_OUT_FILE, GENERAL_FILE, GENERAL_TRAIN_FILE)


def jsonl(bodies: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in bodies).encode()


def instance(root: Path, host: str, hosts: Sequence[str], told: Mapping[str, Any]) -> Folders:
    """Lay out an instance as SageMaker does."""
    (root / "config").mkdir(parents=True)
    resources = {"current_host": host, "hosts": list(hosts)}
    (root / "config/resourceconfig.json").write_text(json.dumps(resources))
    given = root / "processing/input/settings"
    given.mkdir(parents=True)
    (given / "settings.json").write_text(json.dumps(told))
    return Folders(root)


def sharded(
    root: Path, files: Mapping[str, bytes], count: int, told: Mapping[str, Any] = SETTINGS
) -> dict[str, bytes]:
    """Run the first job on ``count`` instances, then the second; return the second job's files."""
    hosts = [f"algo-{number}" for number in range(1, count + 1)]
    lines = root / "split/processing/input/lines"
    lines.mkdir(parents=True)
    for number, host in enumerate(hosts):
        folders = instance(root / host, host, hosts, told)
        for name in sorted(files)[number::count]:
            path = root / host / "processing/input" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        read(folders)
        for path in (root / host / "processing/output").iterdir():
            path.rename(lines / path.name)
    split(instance(root / "split", "algo-1", ["algo-1"], told))
    return {path.name: path.read_bytes() for path in (root / "split/processing/output").iterdir()}


def prompts_of(found: Mapping[str, bytes], name: str) -> list[LearnPrompt]:
    divided = read_split({each: found[each] for each in FILES}, json.loads(found[MANIFEST_FILE]))
    groups = divided.train if name == TRAIN_FILE else divided.held_out
    return [prompt for each in groups for prompt in each.prompts]


def refuse_relatives(train: Sequence[LearnPrompt], held_out: Sequence[LearnPrompt]) -> None:
    for one in train:
        for other in held_out:
            alike = similarity(shingles(user_text(one.body)), shingles(user_text(other.body)))
            assert alike < NEAR, (one.id, other.id)
            assert first_turn(one.body) is None or first_turn(one.body) != first_turn(other.body)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 50), st.integers(1, 9), st.integers(2, 5))
def test_any_number_of_instances_finds_the_split_of_one_machine(
    seed: int, count: int, files: int, instances: int
) -> None:
    bodies = [dict(each.body) for each in mixture(seed, count)]
    named = {
        f"prompts-1/{number:02}.jsonl": jsonl(part)
        for number in range(files)
        if (part := bodies[number::files])
    }
    ordered = [each for number in range(files) for each in bodies[number::files]]
    one_machine = [
        LearnPrompt(str(number), {**body, "max_tokens": 32}) for number, body in enumerate(ordered)
    ]
    wanted = None
    try:
        chosen = {name: SETTINGS[name] for name in ("held_out", "general_trained", "limit", "seed")}
        wanted = split_prompts(one_machine, (), **chosen)
    except SpecError:  # too few conversations
        pass
    with tempfile.TemporaryDirectory() as folder:
        try:
            alone = sharded(Path(folder) / "one", named, 1)
        except SpecError:
            assert wanted is None
            return
        several = sharded(Path(folder) / "several", named, instances)
    assert {name: several[name] for name in FILES} == {name: alone[name] for name in FILES}
    assert wanted is not None
    counts = json.loads(several[MANIFEST_FILE])
    divided = read_split({name: several[name] for name in FILES}, counts)
    for found, expected in ((divided.train, wanted.train), (divided.held_out, wanted.held_out)):
        assert {each.key for each in found} == {each.key for each in expected}
    refuse_relatives(prompts_of(several, TRAIN_FILE), prompts_of(several, HELD_OUT_FILE))
    assert counts["repeats"] == wanted.repeats


def test_near_duplicates_planted_across_three_shards_are_on_one_side(tmp_path: Path) -> None:
    rng = random.Random(11)
    shards: list[list[dict[str, Any]]] = [[], [], []]
    marks: list[str] = []
    for number in range(40):
        mark, text = f"mark{number}x", words(rng, 120)
        marks.append(mark)
        for shard in range(3):  # each shard has its own variant of each prompt, with one other word
            parts = f"{text} {mark}".split()
            parts[rng.randrange(20, 100)] = f"other{shard}"
            shards[shard].append({"prompt": " ".join(parts)})
    # A repeat of one shard's prompt in another, and later turns of one dialogue in three shards.
    shards[2].append(dict(shards[0][0]))
    said: list[dict[str, str]] = [{"role": "user", "content": f"dialogue {words(rng, 20)}"}]
    for shard in range(3):
        shards[shard].append({"messages": [*said]})
        said += [{"role": "assistant", "content": words(rng, 8)}, {"role": "user", "content": words(rng, 9)}]
    files = {f"prompts-1/{number}.jsonl": jsonl(part) for number, part in enumerate(shards)}
    found = sharded(tmp_path, files, 3)
    train, held_out = prompts_of(found, TRAIN_FILE), prompts_of(found, HELD_OUT_FILE)
    refuse_relatives(train, held_out)
    sides: dict[str, set[str]] = {}
    for side, prompts in (("train", train), ("held out", held_out)):
        for prompt in prompts:
            for mark in {word for word in user_text(prompt.body).split() if word in marks}:
                sides.setdefault(mark, set()).add(side)
            if first_turn(prompt.body):
                sides.setdefault("dialogue", set()).add(side)
    assert set(sides) == {*marks, "dialogue"}
    assert all(len(side) == 1 for side in sides.values()), "a relative is on the other side"
    assert len(held_out) >= 2
    counts = json.loads(found[MANIFEST_FILE])
    assert counts["repeats"] == 1
    assert counts["near_repeats"] >= 40, "of each prompt's variants one or two stay out"


def test_a_limit_draws_the_same_prompts_whatever_the_shards(tmp_path: Path) -> None:
    bodies = [{"prompt": words(random.Random(number), 30)} for number in range(60)]
    files = {f"prompts-1/{number}.jsonl": jsonl([*bodies[number::6], bodies[0]]) for number in range(6)}
    told = {**SETTINGS, "limit": 20}
    one, other = (sharded(tmp_path / str(count), files, count, told) for count in (1, 4))
    assert {name: one[name] for name in FILES} == {name: other[name] for name in FILES}
    assert len(prompts_of(one, TRAIN_FILE)) + len(prompts_of(one, HELD_OUT_FILE)) == 20


def test_no_planted_secret_is_in_what_either_job_leaves(tmp_path: Path) -> None:
    rng = random.Random(4)
    secrets = planted()
    bodies: list[dict[str, Any]] = []
    for number, secret in enumerate(secrets):
        text = f"{words(rng, 12)} {secret.text} {words(rng, 12)}"
        beside: dict[str, Any] = {"id": f"{number} {secret.text}", "category": secret.text}
        if len(secret.text) <= LONGEST_VALUE and secret.text.isprintable() and number < MOST_VALUES:
            beside["labels"] = {"team": secret.text}
        asked = {"prompt": text} if number % 2 else {"messages": [{"role": "user", "content": text}]}
        bodies.append({**asked, **beside})
    bodies.append({"turns": [words(rng, 20), f"and {secrets[0].text}"]})
    files = {f"prompts-1/{number}.jsonl": jsonl(bodies[number::3]) for number in range(3)}
    found = sharded(tmp_path, files, 3)
    written = [
        path for path in tmp_path.rglob("*")
        if path.is_file() and "processing/input/prompts" not in path.as_posix()
    ]  # fmt: skip
    text = "".join(path.read_text() for path in written)
    assert len(written) > 8
    assert "redacted/" in found[TRAIN_FILE].decode()
    assert [piece for secret in secrets for piece in pieces(secret.core) if piece in text] == []


def test_turns_of_a_conversation_and_labels_come_back(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = [
        {"prompt": words(random.Random(number), 30), "labels": {"team": f"t{number % 2}"}, "category": "c"}
        for number in range(8)
    ]
    bodies.append({"turns": ["a first question about ducks", "and geese?"]})
    found = sharded(tmp_path, {"prompts-1/a.jsonl": jsonl(bodies)}, 1)
    divided = read_split({name: found[name] for name in FILES}, json.loads(found[MANIFEST_FILE]))
    prompts = [each for group in (*divided.train, *divided.held_out) for each in group.prompts]
    assert {each.labels.get("team") for each in prompts} == {"t0", "t1", None}
    assert {each.category for each in prompts} == {"c", None}
    assert {each.turns for each in prompts} == {(), ("a first question about ducks", "and geese?")}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, files: Mapping[str, bytes]) -> int:
    folders = instance(tmp_path / "m", "algo-1", ["algo-1"], SETTINGS)
    for name, content in files.items():
        path = folders.root / "processing/input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setenv(ROOT_VARIABLE, str(folders.root))
    return main([stage])


def message(tmp_path: Path) -> str:
    return (tmp_path / "m/output/message").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"prompt": "cut', "b.jsonl, line 2: not JSON"),
        (b'["a list"]', "b.jsonl, line 2: found list, expected a JSON object"),
        (b'{"text": "x"}', "b.jsonl, line 2: found neither messages nor prompt (fields: text)"),
        (b'{"prompt": "x", "n": 2}', "n requests several answers"),
    ],
)
def test_a_damaged_line_fails_the_job_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, said: str
) -> None:
    files = {"prompts-1/a/b.jsonl": b'{"prompt": "fine"}\n' + line + b"\n"}
    assert run(tmp_path, monkeypatch, "read", files) == MISTAKEN
    assert said in message(tmp_path)
    assert str(tmp_path) not in message(tmp_path)


def test_the_message_has_no_secret_of_a_damaged_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLQ"  # in two parts: no file of the project may look like one
    files = {"prompts-1/b.jsonl": json.dumps({"turns": f"aws {key}"}).encode()}
    assert run(tmp_path, monkeypatch, "read", files) == MISTAKEN
    assert "turns: found" in message(tmp_path)
    assert key not in message(tmp_path)


def test_empty_files_and_an_instance_without_files_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"")
    assert (
        run(tmp_path, monkeypatch, "read", {"prompts-1/a.jsonl": b"\n", "prompts-1/b.jsonl.gz": packed})
        == DONE
    )
    report = json.loads((tmp_path / "m/processing/output/report-algo-1.json").read_text())
    assert (report["prompts"], report["notes"]) == (0, ["a.jsonl is empty", "b.jsonl.gz is empty"])


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([], "data.prompts has no prompts"),
        ([{"prompt": "one alone"}], "the prompts have 1 conversation without repeats; allowed: at least 4"),
        ([{"prompt": [1, 2, 3]}], "all 1 prompts are token ids"),
        ([{"prompt": f"<|im_start|>{number} ducks"} for number in range(9)], "another model's chat template"),
    ],
)
def test_what_cannot_be_split_is_refused(tmp_path: Path, bodies: list[dict[str, Any]], said: str) -> None:
    told = {**SETTINGS, "target": {**SETTINGS["target"], "control_tokens": ["<s>"]}}
    with pytest.raises(SpecError) as caught:
        sharded(tmp_path, {"prompts-1/a.jsonl": jsonl(bodies)}, 1, told)
    assert said in str(caught.value)
    assert caught.value.next_step


def test_a_part_that_is_missing_fails_the_split(tmp_path: Path) -> None:
    folders = instance(tmp_path, "algo-1", ["algo-1"], SETTINGS)
    lines = tmp_path / "processing/input/lines"
    lines.mkdir()
    report = {"hosts": ["algo-1", "algo-2"], "token_ids": 0, "redacted": {}, "notes": []}
    (lines / "report-algo-1.json").write_text(json.dumps(report))
    (lines / "lines-algo-1.jsonl").write_text("")
    with pytest.raises(SpecError, match="left no part of algo-2"):
        split(folders)


def test_an_unexpected_error_is_not_shown_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "m"))
    (tmp_path / "m").mkdir()
    assert main(["read"]) == FAILED
    assert message(tmp_path) == "FileNotFoundError; the job's log has the cause\n"
    assert main([]) == MISTAKEN
