"""What `learn run` hashes of a source of learn.yaml is exactly what `learn data` reads of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from peagle_learn.core.prompts import TargetTexts
from peagle_learn.prompts import read_prompts
from peagle_learn.steps import content_of
from peagle_learn.stored_data import channel_content
from peagle_sm.aws.session.session import Session
from tests.traffic.samples import line

FILES = (
    "team/a.jsonl",
    "team/day/b.jsonl",
    "team/_SUCCESS",
    "team/notes.txt",
    "team/.peagle-learn/team/answers-0.jsonl",
    "team-b/c.jsonl",
    "team.jsonl",
    "team.jsonl.gz",
)
IN_WORK_FOLDER = "team/.peagle-learn/team/answers-0.jsonl"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("team", {"team/a.jsonl", "team/day/b.jsonl"}),
        ("team/", {"team/a.jsonl", "team/day/b.jsonl"}),
        ("team*", {"team/a.jsonl", "team/day/b.jsonl", "team-b/c.jsonl", "team.jsonl", "team.jsonl.gz"}),
        ("**/*.jsonl", {"team/a.jsonl", "team/day/b.jsonl", "team-b/c.jsonl", "team.jsonl"}),
        ("team/notes.txt", {"team/notes.txt"}),
        (IN_WORK_FOLDER, {IN_WORK_FOLDER}),
        ("team/.peagle-learn", {IN_WORK_FOLDER}),
        ("s3:team", {"team/a.jsonl", "team/day/b.jsonl", IN_WORK_FOLDER}),
        ("s3:team/", {"team/a.jsonl", "team/day/b.jsonl", IN_WORK_FOLDER}),
        ("s3:team/day", {"team/day/b.jsonl"}),
        ("s3:team.jsonl", {"team.jsonl"}),
        ("s3:team.jsonl.gz", {"team.jsonl.gz"}),
        ("s3:", {each for each in FILES if each.endswith((".jsonl", ".jsonl.gz"))}),
    ],
)
def test_the_hash_changes_exactly_with_what_is_read(
    session: Session, bucket: str, tmp_path: Path, source: str, read: set[str]
) -> None:
    base = tmp_path / "project[1]"  # no pattern, though it looks like one
    in_s3 = source.startswith("s3:")
    named = f"s3://{bucket}/{source.removeprefix('s3:')}" if in_s3 else source

    def write(name: str, content: bytes) -> None:
        if in_s3:
            session.client("s3").put_object(Bucket=bucket, Key=name, Body=content)
            return
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def opened() -> object:
        prompts = read_prompts(
            [named], lambda: session, TargetTexts(), max_tokens=8, what="data.prompts", base=base
        )
        return prompts.sources

    def hashed() -> str:
        return content_of(named, base, session)

    for number, name in enumerate(FILES):
        write(name, line(number))
    before = {"read": opened(), "hashed": hashed()}
    changed: dict[str, set[str]] = {"read": set(), "hashed": set()}
    for number, name in enumerate(FILES):
        write(name, line(100 + number))
        for what, now in (("read", opened()), ("hashed", hashed())):
            changed[what] |= {name} if now != before[what] else set()
        write(name, line(number))
    assert changed == {"read": read, "hashed": read}
    assert hashed() == before["hashed"], "the same content has the same hash again"


def test_a_copy_of_the_project_has_the_same_hashes(session: Session, tmp_path: Path) -> None:
    rows = []
    for place in ("here", "there"):
        base = tmp_path / place
        (base / "team").mkdir(parents=True)
        (base / "team" / "a.jsonl").write_bytes(line(1))
        rows.append([content_of(each, base, session) for each in ("team", "team/a.jsonl", "team/*.jsonl")])
    assert rows[0] == rows[1]


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_the_hash_of_a_channel_is_of_what_the_job_gets(
    session: Session, bucket: str, tmp_path: Path, where: str
) -> None:
    given = "team" if where == "folder" else f"s3://{bucket}/team"

    def disk(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def s3(name: str, text: str) -> None:
        session.client("s3").put_object(Bucket=bucket, Key=name, Body=text.encode())

    write: Callable[[str, str], None] = disk if where == "folder" else s3
    for name in ("team/a.tokens.jsonl", "team/other.jsonl", "team-b/a.tokens.jsonl"):
        write(name, "one")
    first = channel_content(given, tmp_path, session)
    write("team-b/a.tokens.jsonl", "two")
    assert channel_content(given, tmp_path, session) == first
    write("team/other.jsonl", "two")  # SageMaker copies all below a prefix
    assert (channel_content(given, tmp_path, session) == first) is (where == "folder")
    write("team/a.tokens.jsonl", "two")
    assert channel_content(given, tmp_path, session) != first
