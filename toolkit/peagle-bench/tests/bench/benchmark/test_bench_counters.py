"""Acceptance from an engine's own account: counters over a load, log lines of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from peagle_bench.benchmark.acceptance import LOG_DELAY_S, Logged, Scraped, engine_source
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import ServiceFault
from tests.bench.benchmark.making import arm
from tests.local.serving import AsOnAws, Server

ENDPOINT = "logs-its-drafts"
GROUP = f"/aws/sagemaker/Endpoints/{ENDPOINT}"

LINE = (
    "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: 10.00 tokens/s, Drafted"
    " throughput: 20.00 tokens/s, Accepted: 100 tokens, Drafted: 200 tokens, Per-position acceptance rate:"
    " 0.700, 0.300, Avg Draft acceptance rate: 50.0%"
)


def pages(*drafts: int | None) -> Callable[[], str]:
    """A /metrics page that counts on from look to look; None is a page that does not answer."""
    left = list(drafts)

    def read() -> str:
        pop = left.pop(0)
        if pop is None:
            raise ServiceFault("gone")
        return (
            f"vllm:spec_decode_num_drafts_total 1 \nvllm:spec_decode_num_drafts_total{{}} {pop - 1}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {2 * pop}\n"
        )

    return read


def test_counters_are_the_difference_over_a_load() -> None:
    source = Scraped(pages(100, 300))
    source.begin()
    result = source.end()
    assert result is not None
    assert (result.source, result.drafts, result.accepted, result.per_step) == ("metrics", 200, 400, 3.0)


def test_a_page_that_does_not_answer_costs_the_figure_and_nothing_else() -> None:
    for looks in ((None, 300), (100, None)):
        source = Scraped(pages(*looks))
        source.begin()
        assert source.end() is None
    assert Scraped(pages(None)).drafts is None


def test_whether_an_engine_drafts_is_seen_in_its_counters() -> None:
    assert Scraped(pages(5)).drafts is True
    assert Scraped(pages(0)).drafts is None
    assert Scraped(lambda: "vllm:generation_tokens_total 5\n").drafts is False


@pytest.fixture
def place(server: Server) -> Iterator[Session]:
    """A region without a log group of the endpoint; moto of one's own would empty the shared server."""
    # CloudWatch takes no line from two hours ahead, and other tests put the server's own clock forward.
    place = Session.from_boto3(AsOnAws(server.url))
    yield place
    for group in place.client("logs").describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]:
        place.client("logs").delete_log_group(logGroupName=group["logGroupName"])


def put(place: Session, lines: list[tuple[int, str]]) -> None:
    client = place.client("logs")
    stream = "v/i"
    client.create_log_group(logGroupName=GROUP)
    client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    now = int(place.now().timestamp() * 1000)
    events = [{"timestamp": now + after, "message": text} for after, text in lines]
    client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def test_log_lines_since_the_load_began_are_summed(place: Session) -> None:
    slept: list[float] = []
    source = Logged(place, ENDPOINT, 2, slept.append)
    source.begin()  # before the lines are written: on a busy machine seconds may lie between
    put(place, [(-60_000, LINE), (1000, LINE), (2000, "other"), (3000, LINE)])
    result = source.end()
    assert result is not None
    assert (result.source, result.drafts, result.accepted) == ("cloudwatch", 200, 200)
    assert result.survival == (0.7, 0.3)
    assert slept == [LOG_DELAY_S]


def test_an_engine_that_logs_nothing_has_no_acceptance(place: Session) -> None:
    source = Logged(place, ENDPOINT, 2, lambda seconds: None)
    source.begin()
    assert source.end() is None


def test_each_arm_has_the_source_that_can_tell() -> None:
    place = Session.from_boto3(boto3.Session("testing", "testing", region_name="us-east-1"))
    assert isinstance(engine_source(None, arm(transport="http", endpoint="http://x")), Scraped)
    assert isinstance(engine_source(place, arm()), Logged)
    assert engine_source(place, arm(mode="none", num_speculative_tokens=None)) is None
    assert engine_source(place, arm(component="c")) is None
    assert engine_source(None, arm()) is None


class Local:
    """A session with a local server that notes which of its own pages are read."""

    is_local = True
    local = None

    def __init__(self) -> None:
        self.pages: list[str] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    def admin_text(self, path: str) -> str:
        self.pages.append(path)
        return "vllm:spec_decode_num_drafts_total 5\n"


def test_a_component_s_counters_are_read_at_its_endpoint() -> None:
    place: Any = Local()
    for measured in (arm(), arm(component="c")):
        source = engine_source(place, measured)
        assert source is not None
        assert source.drafts is True
    assert place.pages == ["endpoints/demo/metrics", "endpoints/demo/metrics?component=c"]
