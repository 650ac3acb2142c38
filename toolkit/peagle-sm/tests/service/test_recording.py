"""`endpoint.record`: whole answers, both stream readers, errors, and what is not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.aws.session.session import LocalTarget, make_session
from peagle_sm.core.errors import ServiceFault, SpecError, StreamError
from peagle_sm.service import Endpoint
from peagle_sm.traffic.reading import read
from tests.local.openai_client import script
from tests.local.serving import Server


@pytest.fixture(scope="module")
def endpoint(server: Server) -> Endpoint:
    session = make_session(local=LocalTarget.from_status(server.status.to_dict()))
    return Endpoint(server.deploy(), session)


def asked(**settings: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "mail ada@example.com"}], **script(**settings)}


async def test_every_way_to_ask_is_recorded(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    endpoint.invoke(asked(SCRIPT_INVOKE="openai"))
    with endpoint.record(path, labels={"team": "search"}) as recording:
        endpoint.invoke(asked(SCRIPT_INVOKE="openai"))
        whole = "".join(chunk.text for chunk in endpoint.stream(asked(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=3)))
        async with endpoint.astream(asked(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=2)) as stream:
            async for _ in stream:
                pass
        with endpoint.stream(asked(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=500, SCRIPT_CHUNK_DELAY=0.02)) as left:
            next(left)
        with pytest.raises(StreamError):
            list(endpoint.stream(asked(SCRIPT_INVOKE="cut", SCRIPT_CHUNKS=2)))
        with pytest.raises(ServiceFault):
            endpoint.invoke(asked(SCRIPT_INVOKE="status:500"))
        with (
            pytest.raises(SpecError, match="is being recorded already"),
            endpoint.record(tmp_path / "u.jsonl"),
        ):
            pass
    endpoint.invoke(asked(SCRIPT_INVOKE="openai"))
    assert recording.summary.line() == "recorded 6 of 6 requests"
    assert recording.problems == []
    records = read(path).records
    assert [one.outcome for one in records] == ["whole", "whole", "whole", "cancelled", "cut", "failed"]
    assert [one.streamed for one in records] == [False, True, True, True, True, False]
    assert records[1].answers[0].text == whole
    assert all(one.slices["label:team"] == "search" for one in records)
    assert "ada@example.com" not in path.read_text()


def test_the_plan_is_shown_and_nothing_happens_before_the_block(endpoint: Endpoint, tmp_path: Path) -> None:
    recording = endpoint.record(tmp_path / "t.jsonl", sample=0.25)
    assert not (tmp_path / "t.jsonl").exists()
    assert dict(recording.plan.rows())["records"].startswith("0.25 of the requests")
    assert "secrets redacted" in str(recording)


def test_a_target_that_cannot_be_opened_leaves_the_endpoint_as_it_was(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="is a folder"), endpoint.record(tmp_path):
        pass
    assert endpoint.recorder is None
