"""Encrypted records in a file: nothing of them in the clear, one KMS call a data key, every refusal named."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from peagle_bench.workloads import load_workload
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.traffic.encrypted_target import RENEW_RECORDS, RENEW_S, DataKeySource, EncryptedTarget
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.plan import planned, start
from peagle_sm.traffic.reading import read
from peagle_sm.traffic.recorder import Recorder, TrafficSource
from peagle_sm.traffic.records import RecordedAnswer
from tests.local.serving import Server, eventually
from tests.traffic.kms_keys import CountingSession, deny, new_key
from tests.traffic.samples import Kept, line
from tests.traffic.test_recorder import Quick, feed

DAY = 24 * 3600.0
SECRETS = ("tell me about the merger", "it closes in March", "team-of-the-board", "e-of-the-bank")


@pytest.fixture
def session(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


@pytest.fixture
def key(session: Session) -> str:
    return new_key(session)


def confidential(number: int = 0) -> bytes:
    prompt, answer, label, endpoint = SECRETS
    return line(
        number,
        endpoint=endpoint,
        request={"prompt": prompt, "max_tokens": 8},
        answers=(RecordedAnswer(0, answer),),
        slices={"label:team": label},
    )


def target_at(path: Path, session: Session, key: str, **clocks: Any) -> EncryptedTarget:
    keys = DataKeySource(session, key)
    keys.prepare()
    return EncryptedTarget(FileTarget(path, keep_days=None, **clocks), keys, **clocks)


def written(path: Path, session: Session, key: str, *lines: bytes) -> Path:
    target = target_at(path, session, key)
    for each in lines:
        target.write([each])
    target.close()
    return path


def opened(session: Any) -> Callable[[], Session]:
    return lambda: session


def test_nothing_of_a_record_is_in_the_file_and_it_is_read_back(
    session: Session, key: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, confidential(1), confidential(2))
    content = path.read_bytes()
    decoded = content + b"".join(
        base64.b64decode(json.loads(each)[name])
        for each in content.splitlines()
        for name in ("sealed", "data_key")
    )
    assert [secret for secret in SECRETS if secret.encode() in decoded] == []
    fields = json.loads(content.splitlines()[0])
    assert list(fields) == ["schema", "time", "kms_key", "data_key", "sealed"]
    assert fields["kms_key"] == key
    records = read(path, session).records
    assert [one.id[-1] for one in records] == ["1", "2"]
    assert (records[0].request["prompt"], records[0].slices["label:team"]) == (SECRETS[0], SECRETS[2])


def test_a_workload_and_learn_read_it_with_one_call_for_each_data_key(
    session: Session, key: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, *(confidential(number) for number in range(50)))
    written(path, session, key, confidential(50))
    counting: Any = CountingSession(session)
    found = load_workload(str(path), session=opened(counting))
    assert len(found.items) == 51
    assert found.notes == ()
    assert found.items[0].body["prompt"] == SECRETS[0]
    assert counting.calls == ["decrypt", "decrypt"]
    assert len(load_workload(str(tmp_path), session=opened(session)).items) == 51


def test_plain_and_encrypted_lines_are_in_one_file(session: Session, key: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    plain = FileTarget(path, keep_days=None)
    plain.write([line(1)])
    written(path, session, key, line(2))
    plain.write([line(3)])
    plain.close()
    assert [one.id[-1] for one in read(path, session).records] == ["1", "2", "3"]


def test_an_encrypted_file_needs_a_session_only_when_it_is_read(
    session: Session, key: str, tmp_path: Path
) -> None:
    plain, closed = tmp_path / "plain.jsonl", written(tmp_path / "t.jsonl", session, key, line(1))
    plain.write_bytes(line(1))

    def never() -> Session:
        raise AssertionError("a plain file needs no session")

    assert len(load_workload(str(plain), session=never).items) == 1
    with pytest.raises(
        SpecError, match=r"encrypted with the KMS key arn:.*no AWS session was given"
    ) as raised:
        read(closed)
    assert "kms:Decrypt" in (raised.value.next_step or "")

    def no_region() -> Session:
        raise CredentialsError("No AWS region is set.", next_step="Give --region or set AWS_REGION.")

    with pytest.raises(
        CredentialsError, match=rf"{closed} is encrypted with the KMS key {key}: No AWS"
    ) as without:
        load_workload(str(closed), session=no_region)
    assert without.value.next_step == "Give --region or set AWS_REGION."


def test_without_credentials_it_says_so(
    session: Session, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, line(1))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    nobody = Session.from_boto3(boto3.Session(region_name="us-east-1"))
    with pytest.raises(
        CredentialsError, match=r"is encrypted with .*no AWS credentials were found"
    ) as raised:
        read(path, nobody)
    assert "AWS_PROFILE" in (raised.value.next_step or "")


def disable(session: Session, key: str) -> None:
    session.client("kms").disable_key(KeyId=key.rpartition("/")[2])


def schedule_deletion(session: Session, key: str) -> None:
    session.client("kms").schedule_key_deletion(KeyId=key.rpartition("/")[2], PendingWindowInDays=7)


REFUSALS: list[tuple[Callable[[Session, str], None], type[PeagleError], str, str]] = [
    (
        lambda s, k: deny(s, k, "kms:Decrypt"),
        CredentialsError,
        "not authorized to perform: kms:Decrypt",
        "kms:Decrypt",
    ),
    (disable, ServiceFault, "is disabled", "aws kms enable-key --region us-east-1 --key-id arn:"),
    (schedule_deletion, ServiceFault, "pending deletion", "aws kms cancel-key-deletion"),
]


@pytest.mark.parametrize(("take_away", "kind", "says", "step"), REFUSALS)
def test_a_key_that_refuses_is_named_and_other_records_are_kept(
    session: Session,
    key: str,
    tmp_path: Path,
    take_away: Callable[[Session, str], None],
    kind: type[PeagleError],
    says: str,
    step: str,
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, line(1), line(2))
    written(path, session, key, line(3))
    take_away(session, key)
    counting: Any = CountingSession(session)
    with pytest.raises(kind, match=f"the KMS key {key} does not decrypt them: Decrypt: .*{says}") as raised:
        load_workload(str(path), session=opened(counting))
    assert step in (raised.value.next_step or "")
    assert counting.calls == ["decrypt"]  # the second data key is of the same KMS key
    written(path, session, new_key(session), line(4))
    with path.open("ab") as file:
        file.write(line(5))
    found = load_workload(str(path), session=opened(session))
    assert len(found.items) == 2
    (note,) = found.notes
    assert note.startswith(f"3 encrypted records were left out: the KMS key {key} does not decrypt them")
    assert step in note
    assert [one.id[-1] for one in read(path, session).records] == ["4", "5"]


def test_a_key_that_does_not_exist_any_more(session: Session, key: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", session, key, line(1))
    gone = key[:-4] + "0000"
    path.write_bytes(path.read_bytes().replace(key.encode(), gone.encode()))
    with pytest.raises(NotFound, match=f"the KMS key {gone} does not decrypt them") as raised:
        read(path, session)
    assert "Check the account and --profile" in (raised.value.next_step or "")


def test_a_kms_that_does_not_answer_is_an_error_that_keeps_its_exit_code(
    session: Session, key: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, line(1))
    with path.open("ab") as file:
        file.write(line(2))
    away = make_session(local=LocalTarget("http://127.0.0.1:9"))
    with pytest.raises(
        ServiceFault, match=r"t.jsonl is encrypted with the KMS key arn:.*no answer"
    ) as raised:
        read(path, away)
    assert raised.value.code == "NoAnswer"


def spoilt(raw: bytes) -> dict[str, bytes]:
    """One encrypted line, changed in every way that somebody or a disk could change it."""
    fields = json.loads(raw)
    sealed, data_key = base64.b64decode(fields["sealed"]), base64.b64decode(fields["data_key"])

    def with_field(name: str, value: Any) -> bytes:
        return json.dumps({**fields, name: value}).encode() + b"\n"

    def coded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "cut": raw[: len(raw) // 2] + b"\n",
        "one bit": with_field("sealed", coded(sealed[:40] + bytes([sealed[40] ^ 1]) + sealed[41:])),
        "nonce": with_field("sealed", coded(bytes(12) + sealed[12:])),
        "shorter": with_field("sealed", coded(sealed[:-5])),
        "empty": with_field("sealed", ""),
        "no base64": with_field("sealed", "###"),
        "no text": with_field("sealed", 7),
        "time": with_field("time", fields["time"] + 1),
        "time as text": with_field("time", "now"),
        "data key": with_field("data_key", coded(data_key[:-1] + bytes([data_key[-1] ^ 1]))),
        "no data key": with_field("data_key", coded(b"x")),
        "KMS key": with_field("kms_key", "arn:aws:kms:us-east-1:123456789012:key/\x1b[2J"),
        "more": with_field("more", 1),
        "less": json.dumps({name: fields[name] for name in fields if name != "time"}).encode() + b"\n",
        "version": with_field("schema", "peagle-sm/traffic/encrypted-2"),
    }


def test_a_line_that_was_cut_or_changed_is_damage_that_is_named(
    session: Session, key: str, tmp_path: Path
) -> None:
    raw = written(tmp_path / "one.jsonl", session, key, confidential(1)).read_bytes()
    for name, changed in spoilt(raw).items():
        path = tmp_path / "t.jsonl"
        path.write_bytes(line(2) + changed + raw)
        found = read(path, session)
        assert [one.id[-1] for one in found.records] == ["2", "1"], name
        assert len(found.notes) == 1, name
        assert found.notes[0].startswith("1 "), name
        assert "line 2" in found.notes[0], name
        assert "\x1b" not in found.notes[0]
        path.write_bytes(changed)
        with pytest.raises(SpecError, match="has no recorded traffic; 1 "):
            read(path, session)


def test_a_record_cannot_be_moved_to_another_data_key(session: Session, key: str, tmp_path: Path) -> None:
    lines = [json.loads(written(tmp_path / f"{n}.jsonl", session, key, line(n)).read_bytes()) for n in (1, 2)]
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({**lines[0], "data_key": lines[1]["data_key"]}) + "\n" + json.dumps(lines[1]))
    found = read(path, session)
    assert [one.id[-1] for one in found.records] == ["2"]
    assert "was changed after it was written" in found.notes[0]


def test_a_data_key_is_renewed_by_age_and_by_number(session: Session, key: str) -> None:
    counting: Any = CountingSession(session)
    now = [0.0]
    keys = DataKeySource(counting, key, monotonic=lambda: now[0])
    keys.prepare()
    names = {keys.current()[0].encrypted for _ in range(RENEW_RECORDS)}
    assert len(names) == 1
    names.add(keys.current()[0].encrypted)
    assert len(names) == 2
    now[0] += RENEW_S
    names.add(keys.current()[0].encrypted)
    assert len(names) == 3
    assert counting.calls == ["generate_data_key"] * 3


def test_a_kms_that_fails_later_loses_records_and_counts_them(
    session: Session, key: str, tmp_path: Path
) -> None:
    counting: Any = CountingSession(session)
    now, problems = [0.0], list[str]()
    keys = DataKeySource(counting, key, monotonic=lambda: now[0])
    keys.prepare()
    target = EncryptedTarget(FileTarget(tmp_path / "t.jsonl", keep_days=None), keys)
    recorder = Recorder(target, TrafficSource("e"), worker=Quick(), on_problem=problems.append)

    def recorded(count: int) -> None:
        handled = recorder.summary.requests + count
        feed(recorder, count, body=line(handled).rstrip())
        eventually(lambda: recorder.summary.recorded + recorder.summary.lost.total() == handled)

    recorded(2)
    now[0] = RENEW_S
    counting.error = CredentialsError(
        "GenerateDataKey: not authorized", details={"code": "AccessDeniedException"}
    )
    recorded(3)
    assert counting.calls == ["generate_data_key"] * 2  # refused once, not asked again for 30 s
    now[0] += 31
    counting.error = None
    recorded(1)
    summary = recorder.close()
    assert (summary.recorded, summary.lost.total()) == (3, 3)
    assert summary.line().endswith(f"LOST 3 (3: {tmp_path / 't.jsonl'}: GenerateDataKey: not authorized)")
    assert len(problems) == 1
    assert "answers are not affected" in problems[0]
    assert (tmp_path / "t.jsonl").read_bytes().count(b"\n") == 3


STARTS: list[tuple[Callable[[Session, str], object], type[PeagleError], str, str]] = [
    (
        lambda s, k: deny(s, k, "kms:GenerateDataKey"),
        CredentialsError,
        "not authorized",
        "kms:GenerateDataKey",
    ),
    (disable, SpecError, "is disabled", "aws kms enable-key"),
    (schedule_deletion, SpecError, "pending deletion", "symmetric encryption key that is enabled"),
]


@pytest.mark.parametrize(("take_away", "kind", "says", "step"), STARTS)
def test_a_key_that_cannot_be_used_is_refused_before_anything_starts(
    session: Session,
    key: str,
    tmp_path: Path,
    take_away: Callable[[Session, str], object],
    kind: type[PeagleError],
    says: str,
    step: str,
) -> None:
    take_away(session, key)
    plan = planned(str(tmp_path / "t.jsonl"), kms_key_id=key)
    with pytest.raises(kind, match=f"the KMS key {key} does not encrypt records: .*{says}") as raised:
        start(plan, session, TrafficSource("e"))
    assert step in (raised.value.next_step or "")
    assert "the file is then not encrypted" in (raised.value.next_step or "")
    assert list(tmp_path.iterdir()) == []


def test_no_key_of_that_name_another_kind_and_no_kms(session: Session, tmp_path: Path) -> None:
    def starts(key: str, session: Session = session) -> None:
        start(planned(str(tmp_path / "t.jsonl"), kms_key_id=key), session, TrafficSource("e"))

    with pytest.raises(NotFound, match="the KMS key alias/nowhere does not encrypt records") as raised:
        starts("alias/nowhere")
    assert "aws kms list-aliases --region us-east-1" in (raised.value.next_step or "")
    signing = session.client("kms").create_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")
    with pytest.raises(SpecError, match=r"does not encrypt records: .*SIGN_VERIFY"):
        starts(signing["KeyMetadata"]["Arn"])
    with pytest.raises(ServiceFault, match="does not encrypt records: GenerateDataKey: no answer"):
        starts("alias/records", make_session(local=LocalTarget("http://127.0.0.1:9")))
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_it_says_how_to_install_it(
    session: Session, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "t.jsonl", session, key, line(1))
    monkeypatch.setitem(sys.modules, "cryptography", None)
    plan = planned(str(tmp_path / "u.jsonl"), kms_key_id=key)
    for action in (lambda: read(path, session), lambda: start(plan, session, TrafficSource("e"))):
        with pytest.raises(NotFound, match="need the package cryptography") as raised:
            action()
        assert "cryptography>=" in (raised.value.next_step or "")
    assert not (tmp_path / "u.jsonl").exists()


def test_an_alias_works_and_the_file_names_the_key(session: Session, tmp_path: Path) -> None:
    arn = new_key(session, "alias/peagle-records")
    path = written(tmp_path / "t.jsonl", session, "alias/peagle-records", line(1))
    assert json.loads(path.read_bytes())["kms_key"] == arn
    assert len(read(path, session).records) == 1


def test_a_key_of_another_region_is_used_there(server: Server, session: Session, tmp_path: Path) -> None:
    arn = server.client("kms", region_name="eu-west-1").create_key()["KeyMetadata"]["Arn"]
    assert ":eu-west-1:" in arn
    path = written(tmp_path / "t.jsonl", session, arn, line(1))
    assert len(read(path, session).records) == 1


def test_an_encrypted_file_is_a_recording_that_is_rotated_and_deleted_by_age(
    session: Session, key: str, tmp_path: Path
) -> None:
    path, now = tmp_path / "t.jsonl", [1.0e9]
    target = target_at(path, session, key, clock=lambda: now[0])
    target.write([line(1)])
    target.tick()
    now[0] += DAY + 1
    target.tick()
    target.write([line(2)])
    target.close()
    (old,) = tmp_path.glob("t-*.jsonl")
    assert old.name.startswith("t-20010910T014641Z-")
    assert [one.id[-1] for one in read(path, session).records] == ["2"]
    assert len(read(tmp_path, session).records) == 2
    os.utime(old, (now[0] - 40 * DAY,) * 2)
    plain = FileTarget(path, keep_days=30, clock=lambda: now[0])  # it takes the file for a recording
    plain.tick()
    plain.close()
    assert not old.exists()


WRITER = """
import sys
import threading
from pathlib import Path
from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.traffic.encrypted_target import DataKeySource, EncryptedTarget
from peagle_sm.traffic.file_target import FileTarget
from tests.traffic.samples import line
path, url, key, first = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
file = FileTarget(path, keep_days=None, rotate_bytes=20_000)
target = EncryptedTarget(file, DataKeySource(make_session(local=LocalTarget(url)), key))
for number in range(first, first + 60):
    target.write([line(number)])
    target.tick()
target.close()
"""


def test_several_processes_append_to_one_file_each_with_its_data_key(
    session: Session, key: str, tmp_path: Path, root: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'toolkit' / 'peagle-sm'}"}
    url = session.local_url or ""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "t.jsonl"), url, key, str(first)], env=environment
        )
        for first in (0, 60)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    counting: Any = CountingSession(session)
    found = read(tmp_path, counting)
    assert found.notes == ()
    assert sorted(int(one.id, 16) for one in found.records) == list(range(120))
    assert len(list(tmp_path.iterdir())) > 1
    assert counting.calls == ["decrypt"] * 2


def test_the_plan_says_what_is_hidden_and_what_is_not() -> None:
    encrypted = dict(planned("t.jsonl", kms_key_id="alias/records").rows())["encryption"]
    assert encrypted.startswith("each record, with a data key of the KMS key alias/records")
    assert "its time and length are not hidden" in encrypted
    assert dict(planned("t.jsonl").rows())["encryption"].startswith("none of its own")


def test_what_is_in_hand_when_kms_hangs_at_the_end_is_counted() -> None:
    class Hanging(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.go, self.began = threading.Event(), threading.Event()

        def write(self, lines: Any) -> None:
            self.began.set()
            self.go.wait(30)

    target = Hanging()
    recorder = Recorder(target, TrafficSource("e"), worker=Quick())
    feed(recorder, 1)
    assert target.began.wait(30)
    feed(recorder, 3)
    summary = recorder.close(timeout_s=0.1)
    target.go.set()
    assert (summary.recorded, dict(summary.lost)) == (0, {"not finished and written before the end": 4})
