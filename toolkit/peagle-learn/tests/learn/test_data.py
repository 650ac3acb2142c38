"""`learn data` over the local SageMaker: secrets, split, resume, refusals, and what is stored."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.workloads import conversations_in, load_workload
from peagle_learn.commands.data import render_data_offer
from peagle_learn.core.conversations import NEAR, shingles, similarity
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import DataResult, make_data, plan_data
from peagle_learn.stored_data import (
    GENERAL,
    HELD_OUT,
    TRAINING,
    VALIDATION,
    find_data,
    set_uri,
    stored_manifest,
)
from peagle_learn.work_folder import only_one
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import Declined, NotFound, PeagleError, PlanRefused, SpecError
from peagle_sm.core.request_slices import MOST_VALUES
from peagle_sm.core.slice_values import LONGEST_VALUE
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint, delete, deploy
from tests.cli.running import run
from tests.learn.byte_engine import ByteEngine, text_of_ids
from tests.learn.conftest import Make
from tests.learn.core.test_conversations import words
from tests.local.serving import Server
from tests.traffic.planted import Planted, pieces, planted


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def files_below(folder: Path) -> dict[Path, bytes | None]:
    """Return all files and folders with their content."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def make_set(spec: LearnSpec, session: Session, work: Path, engine: Any = None) -> DataResult:
    plan = plan_data(spec, session, work)
    return make_data(
        plan,
        session,
        work,
        confirm=lambda offer: True,
        progress=lambda event: None,
        engine=engine or ByteEngine(),
    )


def texts(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"prompt": words(rng, 30)} for _ in range(count)]


def test_planted_secrets_are_in_no_file_and_in_no_request(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    secrets, rng = planted(), random.Random(4)
    assert len(secrets) >= 50
    lines: list[dict[str, Any]] = []
    for number, secret in enumerate(secrets):
        text = f"{words(rng, 12)} {secret.text} {words(rng, 12)}"
        lines.append({"prompt": text} if number % 2 else {"messages": [{"role": "user", "content": text}]})
    lines.append({"turns": [words(rng, 20), f"and {secrets[0].text}"]})
    engine = ByteEngine(lambda text: f"said {text[-400:]}")
    result = make_set(spec_of(lines, general=lines[:8]), session, tmp_path / "work", engine)
    stored = "\n".join(engine.prompts)
    for path in sorted((tmp_path / "work").rglob("*")):
        if path.is_file():
            stored += path.read_text()
    for name in (TRAINING, VALIDATION):
        for row in rows_of((result.folder / name).read_text()):
            stored += text_of_ids(row["input_ids"])
    assert [secret.name for secret in secrets if any(piece in stored for piece in pieces(secret.core))] == []
    assert "[REDACTED:" in stored


def with_secrets_beside(lines: list[dict[str, Any]], secrets: list[Planted]) -> list[dict[str, Any]]:
    """Plant a secret in each line's id and category, and in labels as many as may be."""
    rows = []
    for number, (line, secret) in enumerate(zip(lines, secrets, strict=True)):
        beside: dict[str, Any] = {"id": f"{number} {secret.text}", "category": secret.text}
        if len(secret.text) <= LONGEST_VALUE and secret.text.isprintable() and number < 2 * MOST_VALUES:
            beside["labels"] = {f"team-{number // MOST_VALUES}": secret.text}
        rows.append({**line, **beside})
    return rows


def test_no_secret_of_an_id_a_category_or_a_label_is_stored_or_shown(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    secrets = planted()
    key = "AKIA" + "IOSFODNN7EXAMPLQ"  # in two parts: no file of the project may look like one
    lines = with_secrets_beside(texts(len(secrets)), secrets)
    lines.append({"turns": ["one question", "and the next"], "id": key, "labels": {key: "x", "team": "a"}})
    assert sum("labels" in line for line in lines) > 20
    spec = spec_of(lines, general=with_secrets_beside(texts(8, seed=1), secrets[:8]), held_out=0.5)
    shown = render_data_offer(plan_data(spec, session, tmp_path / "work").offer)
    result = make_set(spec, session, tmp_path / "work")
    stored = shown + "".join(
        path.read_text() for path in sorted((tmp_path / "work").rglob("*")) if path.is_file()
    )
    assert [secret.name for secret in secrets if any(piece in stored for piece in pieces(secret.core))] == []
    assert key not in stored
    assert "[REDACTED:" in shown
    for name in (HELD_OUT, GENERAL):  # the proof reads them again
        assert load_workload(str(result.folder / name)).items


def test_a_second_learn_data_is_refused_while_one_runs(spec_of: Make, server: Server, tmp_path: Path) -> None:
    spec = spec_of(texts(8))
    path = tmp_path / "learn.yaml"
    path.write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    port = ("--local-port", server.url.rpartition(":")[2])
    with only_one(tmp_path / ".peagle-learn" / "team", "peagle-sm learn run"):
        result = run("learn", "data", path, "--yes", *port)
        assert result.exit_code == 3
        assert "(peagle-sm learn run) works in" in result.stderr


def test_a_dry_run_reads_what_another_command_is_writing_and_changes_nothing(
    spec_of: Make, session: Session, server: Server, tmp_path: Path
) -> None:
    spec, top = spec_of(texts(8)), tmp_path / ".peagle-learn"
    path, work = tmp_path / "learn.yaml", top / "team"
    path.write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    dry = ("learn", "data", path, "--dry-run", "--local-port", server.url.rpartition(":")[2])
    tried = run(*dry)
    assert tried.exit_code == 0, tried.stderr
    assert not top.exists()
    make_set(spec, session, work)
    (journal,) = work.glob("answers-*.jsonl")
    lines = [line for line in journal.read_text().splitlines(keepends=True) if '"turns"' in line]
    half = "".join(lines[:3]) + lines[3][:40]
    journal.write_text(half)
    with only_one(work, "peagle-sm learn run"), journal.open("a") as writer:
        before = files_below(top)
        tried = run(*dry)
        assert tried.exit_code == 0, tried.stderr
        assert "5 to ask for, 3 there" in tried.output
        assert files_below(top) == before
        writer.write(lines[3][40:])
    assert journal.read_text() == "".join(lines[:4])


def test_no_held_out_prompt_has_a_relative_in_the_training_file(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    lines = texts(60)
    lines += [{"prompt": f"now {line['prompt']}"} for line in lines[:20]] + lines[20:30]
    result = make_set(spec_of(lines, held_out=0.3), session, tmp_path / "work")
    sets = {name: (rows_of((result.folder / name).read_text())) for name in (TRAINING, VALIDATION)}
    assert {row["conversation"] for row in sets[TRAINING]}.isdisjoint(
        row["conversation"] for row in sets[VALIDATION]
    )
    prompts = {
        name: [
            shingles(
                text_of_ids(
                    [each for each, mask in zip(row["input_ids"], row["loss_mask"], strict=True) if not mask]
                )
            )
            for row in rows
        ]
        for name, rows in sets.items()
    }
    assert max(similarity(a, b) for a in prompts[TRAINING] for b in prompts[VALIDATION]) < NEAR
    assert result.rows[TRAINING] + result.rows[VALIDATION] == 60


def test_a_share_of_the_general_prompts_is_trained_on_and_not_measured(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    general = texts(20, seed=1)
    engine = ByteEngine()
    result = make_set(spec_of(texts(20), general, general_trained=0.5), session, tmp_path / "work", engine)
    measured = {json.loads(line)["prompt"] for line in (result.folder / GENERAL).read_text().splitlines()}
    total = {each["prompt"] for each in general} & set(engine.prompts)
    assert len(total) >= 4
    assert total.isdisjoint(measured)
    assert total | measured == {each["prompt"] for each in general}
    assert result.rows[TRAINING] + result.rows[VALIDATION] == 20 + len(total)


def test_the_stored_prompts_carry_their_conversation_and_the_proof_counts_it(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    people = [[line["prompt"] for line in texts(3, seed=person)] for person in range(20)]
    lines = [{"prompt": text, "conversation": f"p{n}"} for n, own in enumerate(people) for text in own]
    general = [{"prompt": line["prompt"], "conversation": "g"} for line in texts(9, seed=99)]
    spec = spec_of(lines, general, held_out=0.4)
    offer = plan_data(spec, session, tmp_path / "work").offer
    counts = {each.name: each.conversations for each in offer.sets}
    assert (counts["held out"] >= 8, counts["general"]) == (True, 1)
    assert [note for note in offer.notes if "learn prove" in note and note.startswith("general: 1 ")]
    assert not [note for note in offer.notes if note.startswith("held out")]
    folder = make_set(spec, session, tmp_path / "work").folder
    for name, count in ((HELD_OUT, counts["held out"]), (GENERAL, 1)):
        stored = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert len({line["conversation"] for line in stored}) == count
        assert conversations_in(load_workload(str(folder / name)).items) == count
        of_person = [person for person in people if {line["prompt"] for line in stored} >= set(person)]
        assert len(of_person) == (count if name == HELD_OUT else 0), "no conversation is cut in two"


def test_what_is_stored_is_what_the_manifest_says_and_a_repeat_changes_nothing(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    spec = spec_of(texts(20), general=texts(8, seed=1))
    first = make_set(spec, session, tmp_path / "work")
    engine = ByteEngine()
    again = make_set(spec, session, tmp_path / "work", engine)
    assert (again.data, engine.prompts) == (first.data, [])
    manifest = stored_manifest(spec, session)
    assert manifest["data"] == first.data
    bucket, prefix = s3.split_uri(first.uri)
    sizes = s3.list_sizes(session, bucket, prefix)
    assert {name: each["size"] for name, each in manifest["files"].items()} == sizes


def test_new_data_leaves_the_set_that_a_job_may_be_reading(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    """A job downloads its channels for minutes; what lies in their prefixes must not change meanwhile."""
    first = make_set(spec_of(texts(20)), session, tmp_path / "work")
    bucket, prefix = s3.split_uri(first.uri)
    before = s3.listed_objects(session, bucket, prefix)
    spec = spec_of(texts(24, seed=2))
    second = make_set(spec, session, tmp_path / "work")
    assert second.uri == set_uri(spec, stored_manifest(spec, session)["data"]) != first.uri
    assert s3.listed_objects(session, bucket, prefix) == before


def test_the_data_is_deleted_with_its_older_versions_and_nothing_else(
    spec_of: Make, session: Session, tmp_path: Path, server: Server, bucket: str
) -> None:
    client = session.client("s3")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    spec = spec_of(texts(20))
    make_set(spec, session, tmp_path / "work")
    make_set(spec_of(texts(24, seed=2)), session, tmp_path / "work")
    client.put_object(Bucket=bucket, Key="x/team/heads/h/config.json", Body=b"{}")
    (tmp_path / "learn.yaml").write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    words = ("learn", "delete-data", tmp_path / "learn.yaml", "--local-port", server.url.rpartition(":")[2])
    assert run(*words).exit_code == 2
    assert find_data(spec, session).objects == 7
    done = run(*words, "--yes", "--format", "json")
    assert done.exit_code == 0, done.output
    left = client.list_object_versions(Bucket=bucket)
    assert [one["Key"] for one in left["Versions"]] == ["x/team/heads/h/config.json"]
    assert "DeleteMarkers" not in left
    assert run(*words, "--yes").exit_code == 4


def test_nothing_is_sent_or_stored_before_it_is_confirmed(
    spec_of: Make, session: Session, tmp_path: Path, bucket: str
) -> None:
    engine = ByteEngine()
    plan = plan_data(spec_of(texts(8)), session, tmp_path / "work")
    with pytest.raises(Declined):
        make_data(
            plan, session, tmp_path / "work", confirm=lambda _: False, progress=lambda _: None, engine=engine
        )
    assert engine.prompts == []
    assert not (tmp_path / "work").exists()
    assert s3.list_sizes(session, bucket, "") == {}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "p.jsonl has no prompts"),
        ([{"prompt": "def f():"}], "the prompts have 1 conversation without repeats; allowed: at least 4"),
        ([{"prompt": "<|im_start|>user\nhello<|im_end|>"}] * 5, "another model's chat template"),
        ([{"prompt": [1, 99_999]}] * 5, "It was made with another tokenizer"),
        ([{"prompt": [1, 2]}] * 5, "all 5 prompts are token ids, in which secrets cannot be found"),
        ([{"text": "x"}], "found neither messages nor prompt"),
        ([{"messages": "hi"}], "messages: found 'hi'; allowed: a list of objects, each with a role"),
    ],
)
def test_bad_prompts_are_refused_before_anything_is_sent(
    spec_of: Make, session: Session, tmp_path: Path, lines: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        plan_data(spec_of(lines), session, tmp_path / "work")
    assert message in caught.value.message
    assert not (tmp_path / "work").exists()


def test_the_endpoints_hours_bound_the_sampling(spec_of: Make, session: Session, tmp_path: Path) -> None:
    now = session.now()

    def deployed(minutes: int) -> str:
        """An endpoint that its hours turn off so many minutes from now."""
        starts, ends = (f"{now + timedelta(minutes=each):%H:%M}" for each in (-120, minutes))
        spec = EndpointSpec(name=f"hours-{minutes}", model="tiny-code", hours=f"{starts}-{ends} UTC")
        result: Endpoint = deploy(spec, session=session, unguarded=True)
        return result.name

    work, names = tmp_path / "work", [deployed(4), deployed(20)]
    late, soon = (spec_of(texts(400)).model_copy(update={"endpoint": name}) for name in names)
    with pytest.raises(PlanRefused, match=r"by its hours; .*Nothing was sent") as refused:
        plan_data(late, session, work)
    assert f"peagle-sm keep {names[0]} 2h" in str(refused.value.next_step)
    engine, plan = ByteEngine(), plan_data(soon, session, work)
    assert (plan.offer.ends, plan.offer.ends_early) == ("hours", False)
    assert "the endpoint's hours end" in render_data_offer(plan.offer)
    assert replace(plan.offer, ends="lifetime").ending.startswith("lifetime ends 20")
    slow = replace(plan.offer, ends_early=True)
    assert "Too early for all answers" in render_data_offer(slow)
    due = replace(plan, offer=replace(plan.offer, until=now))
    with pytest.raises(PlanRefused, match="lifetime or hours are too short"):
        make_data(due, session, work, confirm=lambda _: True, progress=lambda _: None, engine=engine)
    assert engine.prompts == []
    delete(names, session=session)


def test_paths_are_relative_to_the_spec_and_not_to_the_working_folder(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    others = [{"prompt": " ".join(f"w{number}{place}" for place in range(9))} for number in range(6)]
    whole = spec_of(texts(8), others)
    beside = whole.data.model_copy(update={"prompts": ("p.js*",), "general": "g.jsonl"})
    work, spec = tmp_path / "work", whole.model_copy(update={"data": beside})
    offers = [plan_data(one, session, work, base=tmp_path).offer for one in (spec, whole)]
    assert offers[0].to_ask == offers[1].to_ask > 0
    with pytest.raises(SpecError, match=r"no file matches .*elsewhere"):
        plan_data(spec, session, work, base=tmp_path / "elsewhere")


def test_a_missing_bucket_or_endpoint_is_named(spec_of: Make, session: Session, tmp_path: Path) -> None:
    spec = spec_of(texts(8))
    with pytest.raises(NotFound, match="the bucket nowhere-at-all does not exist"):
        plan_data(spec.model_copy(update={"bucket": "s3://nowhere-at-all/"}), session, tmp_path)
    with pytest.raises(PeagleError, match="gone-endpoint"):
        plan_data(spec.model_copy(update={"endpoint": "gone-endpoint"}), session, tmp_path)


def test_answers_that_are_not_used_any_more_are_named_before_all_are_asked_for_again(
    spec_of: Make, session: Session, tmp_path: Path
) -> None:
    work = tmp_path / "work"

    def notes(lines: list[dict[str, Any]], **data: Any) -> str:
        return " ".join(plan_data(spec_of(lines, **data), session, work).offer.notes)

    assert "not used" not in notes(texts(8))
    make_set(spec_of(texts(8)), session, work)
    (journal,) = work.glob("answers-*.jsonl")
    assert "not used" not in notes(texts(8))
    assert "not used" not in notes(texts(9)), "only the new one is asked for"
    assert "8 answers of an earlier run are not used: they are of another target, endpoint, max_tokens, " in (
        notes(texts(8), max_tokens=16)
    )
    shown = render_data_offer(plan_data(spec_of(texts(8), max_tokens=16), session, work).offer)
    assert journal.name in shown
    assert max(map(len, shown.splitlines())) <= 80
    make_set(spec_of(texts(8), max_tokens=16), session, work)
    assert "not used" not in notes(texts(8), max_tokens=16)


def test_the_command_sends_over_http_and_shows_what_it_made(
    spec_of: Make, session: Session, tmp_path: Path, server: Server
) -> None:
    spec = spec_of(texts(12), general=texts(4, seed=5))
    (tmp_path / "learn.yaml").write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    port = server.url.rpartition(":")[2]
    shown = run("learn", "data", tmp_path / "learn.yaml", "--dry-run", "--local-port", port)
    assert shown.exit_code == 0, shown.output
    assert "12 to ask for, 0 there" in shown.output
    assert max(len(line) for line in shown.output.splitlines()) <= 100
    outcome = run("learn", "data", tmp_path / "learn.yaml", "--yes", "--format", "json", "--local-port", port)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    assert result["rows"] == {TRAINING: 10, VALIDATION: 2}
    text = (tmp_path / ".peagle-learn" / "team" / "data" / TRAINING).read_text()
    assert {tuple(row["input_ids"]) for row in rows_of(text)} == {(1, 2, 3, 5, 6)}
    refused = run("learn", "data", tmp_path / "learn.yaml", "--local-port", port)
    assert refused.exit_code == 2
    assert "Nothing was changed" in refused.output
