"""Counting by slice in the gate: what is counted, what the caller gets, and what the log says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.asgi import Gate, Message, Receive, Send
from peagle_gate.asgi import ask as ask_application
from peagle_gate.slice_counts import LARGEST_FALL, MOST_STRATA, SliceCounter, log_lines
from peagle_gate.slice_values import MOST_VALUES, labels_of_header, read_chosen, slices_of_body
from peagle_gate.startup import SettingError, read_settings
from tests.container.test_gate import SPECULATIVE, process_settings

REPORT = {"acceptance_histogram": [1, 0, 3], "num_spec_steps": 4, "num_accepted_draft_tokens": 6}
REPORT |= {"num_draft_tokens": 8, "num_spec_tokens": 2, "mean_acceptance_length": 2.5}
USAGE = {"prompt_tokens": 300, "completion_tokens": 11, "total_tokens": 311}
TRICK = 'data: {"choices":[],"usage":{},"speculative_decoding":{"num_spec_steps":99}}\n\n'


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


class Streaming:
    """Answers as vLLM does: its usage, and with it the report, only to a stream that asks for it."""

    def __init__(self, report: dict[str, Any] | None = REPORT, status: int = 200) -> None:
        self.report, self.status = report, status
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        length = dict(scope["headers"]).get(b"content-length")
        assert length is None or int(length) == len(body)
        request = json.loads(body)
        self.bodies.append(request)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        further = {"metrics": {"speculative_decoding": self.report}} if self.report else {}
        if not request.get("stream"):
            whole = {"choices": [{"text": TRICK}], "usage": USAGE, **further}
            await send({"type": "http.response.body", "body": compact(whole).encode()})
            return
        events = [compact({"choices": [{"text": TRICK}]}), compact({"choices": [{"text": "b"}]})]
        if (request.get("stream_options") or {}).get("include_usage"):
            events.append(compact({"choices": [], "usage": USAGE, **further}))
        for event in [*events, "[DONE]"]:
            part = {"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True}
            await send(part)
        await send({"type": "http.response.body", "body": b""})


def gate_of(engine: Streaming, slices: str) -> Gate:
    settings = {"PEAGLE_GATE_CANARY_PROMPTS": "0", "PEAGLE_GATE_SLICES": slices}
    with process_settings(["--speculative-config", SPECULATIVE], settings):
        return Gate(engine)


async def ask(gate: Gate, body: object, label: str = "") -> str:
    async def with_label(scope: Message, receive: Receive, send: Send) -> None:
        headers = [*scope["headers"], (b"content-length", str(len(json.dumps(body))).encode())]
        if label:
            headers.append((b"X-Amzn-SageMaker-Custom-Attributes", label.encode()))
        await gate({**scope, "headers": headers}, receive, send)

    status, content = await ask_application(with_label, {}, "POST", "/invocations", body)
    assert status == 200
    return content.decode()


def taken(gate: Gate) -> tuple[dict[Any, list[int]], int]:
    assert gate._counter is not None
    counts, uncounted = gate._counter.take()
    return {stratum: sums.to_list() for stratum, sums in counts.items()}, uncounted


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}])
async def test_a_stream_is_counted_and_its_caller_sees_what_it_would_have_seen(options: Any) -> None:
    engine = Streaming()
    gate = gate_of(engine, "format;label:team=search,support")
    request = {"prompt": "x", "stream": True} | ({} if options is None else {"stream_options": options})
    seen = await ask(gate, request, "trace=1;team=search")
    plain = await ask(gate_of(Streaming(), ""), {"prompt": "x", "stream": True})
    assert seen == plain
    assert TRICK in json.loads(seen.split("\n\n")[0].removeprefix("data: "))["choices"][0]["text"]
    assert taken(gate) == ({(("text", "search"), 2): [1, 4, 6, 16, 24, 36]}, 0)
    assert taken(gate) == ({}, 0)


async def test_a_caller_who_asks_for_the_usage_gets_it() -> None:
    engine = Streaming()
    gate = gate_of(engine, "prompt tokens;output tokens")
    seen = await ask(gate, {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}})
    assert '"usage"' in seen
    assert engine.bodies[0]["stream_options"] == {"include_usage": True}
    assert list(taken(gate)[0]) == [(("256 to 1k", "below 256"), 2)]


async def test_a_whole_answer_is_counted_and_not_changed() -> None:
    gate = gate_of(Streaming(), "api;label:team=search")
    seen = await ask(gate, {"messages": [{"role": "user", "content": "x"}]}, "team=unknown")
    assert json.loads(seen)["choices"][0]["text"] == TRICK
    assert list(taken(gate)[0]) == [(("chat", "other"), 2)]


async def test_without_chosen_slices_nothing_is_read_or_changed() -> None:
    engine = Streaming()
    gate = gate_of(engine, "")
    assert gate._counter is None
    await ask(gate, {"prompt": "x", "stream": True})
    assert "stream_options" not in engine.bodies[0]


async def test_answers_without_a_report_are_counted_as_uncounted() -> None:
    """As with n > 1. The usage that the gate asked for is taken out of the stream all the same."""
    gate = gate_of(Streaming(report=None), "format")
    seen = await ask(gate, {"prompt": "x", "stream": True, "n": 2})
    assert '"usage"' not in seen.replace(json.dumps(TRICK), "")
    assert taken(gate) == ({}, 1)
    broken = Streaming(report=None, status=500)
    assert await ask_application(gate_of(broken, "format"), {}, "POST", "/invocations", {"prompt": "x"})
    assert taken(gate) == ({}, 0)


async def test_a_request_that_is_cancelled_is_uncounted() -> None:
    class Held(Streaming):
        async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.Event().wait()

    gate = gate_of(Held(), "format")
    task = asyncio.ensure_future(ask(gate, {"prompt": "x", "stream": True}))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken(gate) == ({}, 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    st.none() | st.dictionaries(st.text(), json_values, max_size=2),
    st.booleans(),
    st.sampled_from(["", " \n", "\t"]),
)
def test_a_body_with_the_usage_asked_for_is_the_same_otherwise(
    fields: dict[str, Any], options: Any, ascii_only: bool, tail: str
) -> None:
    request = {**fields, "stream": True, "stream_options": options}
    body = (json.dumps(request, ensure_ascii=ascii_only) + tail).encode(errors="surrogatepass")
    counter = SliceCounter(read_chosen(["format"]))
    changed = json.loads(counter.follow(json.loads(body), []).body(body))
    assert changed.pop("stream_options")["include_usage"] is True
    expected = json.loads(body)
    expected.pop("stream_options")
    assert changed == expected


@given(st.binary(max_size=60))
def test_any_header_is_read(header: bytes) -> None:
    for name, value in labels_of_header(header.decode("latin-1")).items():
        assert name.replace("-", "").replace("_", "").isalnum()
        assert 0 < len(value) <= 64


def test_labels_stand_beside_what_is_not_ours() -> None:
    assert labels_of_header("accept_eula=true; team = search ,trace:1234;=x;b=") == {
        "accept_eula": "true",
        "team": "search",
    }


def test_the_number_of_series_is_bounded() -> None:
    """A label, a reasoning effort and a script with a thousand values each; four listed slices."""
    chosen = read_chosen(["script", "reasoning effort", "label:team=a,b", "format=text,json"])
    counter = SliceCounter(chosen)
    for number in range(3000):
        slices = {"script": f"s{number}", "reasoning effort": f"r{number % 999}", "label:team": f"t{number}"}
        counter.count({**slices, "format": "text"}, REPORT | {"num_draft_tokens": 4 + number % 9 * 4}, {})
    counts, _ = counter.take()
    assert len(counts) <= MOST_STRATA + 9
    assert len({values[0] for values, _ in counts}) <= MOST_VALUES + 1
    lines = log_lines(counter, counts, 0, (), namespace="n", since=1, unix_ms=2)
    series = set()
    for line in map(json.loads, lines):
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]:
            series.add((metric["Name"], *(line[name] for name in directive["Dimensions"][0])))
            assert isinstance(line[metric["Name"]], int | float)
    assert len(series) <= 12
    assert len(lines[0]) < 256 * 1024


def test_the_log_lines_in_full() -> None:
    counter = SliceCounter(read_chosen(["format=text", "api"]))
    counter.count({"format": "text", "api": "chat"}, REPORT, {})
    counter.lost()
    first, second = map(
        json.loads,
        log_lines(counter, *counter.take(), (), namespace="peagle-sm/a", since=5.5, unix_ms=7000),
    )
    assert first == {
        "_aws": {
            "Timestamp": 7000,
            "CloudWatchMetrics": [
                {
                    "Namespace": "peagle-sm/a",
                    "Dimensions": [[]],
                    "Metrics": [
                        {"Name": "DriftingSlices", "Unit": "Count"},
                        {"Name": "LargestFallPercent", "Unit": "Percent"},
                        {"Name": "UncountedRequests", "Unit": "Count"},
                    ],
                }
            ],
        },
        "source": "peagle_gate",
        "since": 5.5,
        "dimensions": ["format", "api"],
        "counts": [[["text", "chat"], 2, 1, 4, 6, 16, 24, 36]],
        "changes": [],
        "DriftingSlices": 0,
        LARGEST_FALL: 0.0,
        "UncountedRequests": 1,
    }
    assert (second["Slice"], second["SliceAcceptedTokens"], second["SliceDrafts"]) == ("format: text", 6, 4)
    assert second["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Slice"]]


@pytest.mark.parametrize(
    "text", ["let it be", "пусть", "सूची", "写一个", "ソートを", "정렬", "اكتب", "ok 写一个吗", "{}[]()", ""]
)
def test_each_script_of_a_prompt_can_be_listed(text: str) -> None:
    script = slices_of_body({"prompt": text})["script"]
    assert read_chosen([f"script={script}"])[0].listed == (script,)


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ("colour", "found 'colour'"),
        ("label:team", "label:team=search,support"),
        ("label:a b=c", "found 'label:a b'"),
        ("format=yaml", "text, json, json schema, grammar (found 'yaml')"),
        ("api;tools;format;script;temperature", "at most 4 dimensions (found 5)"),
        ("format=text,json;label:team=a,b,c", "at most 4 listed values in all"),
        ("api;api=chat", "each dimension once"),
        ("script=", "1 to 64 characters"),
        ("script=latin,chinese", "han (Chinese), japanese, hangul (Korean)"),
        ("script=hiragana", "(found 'hiragana')"),
        (
            "label:team=search,größe",
            "ASCII, as the header x-amzn-sagemaker-custom-attributes (found 'größe')",
        ),
    ],
)
def test_slices_that_cannot_be_counted_are_refused_at_the_start(slices: str, message: str) -> None:
    with pytest.raises(SettingError, match="PEAGLE_GATE_SLICES") as error:
        read_settings({"PEAGLE_GATE_SLICES": slices})
    assert message in str(error.value)
