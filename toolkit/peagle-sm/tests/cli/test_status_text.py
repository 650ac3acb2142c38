from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from peagle_sm.aws.streams.answers import Acceptance, StreamSummary
from peagle_sm.cli.commands.endpoints.invoke import acceptance_note, render_summary
from peagle_sm.cli.commands.endpoints.status import render_list
from peagle_sm.core.display import text as text_of
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.service import EndpointStatus, EndpointSummary
from tests.cli.samples import NOW

LATER = NOW + timedelta(hours=2)
SERVING = EndpointSummary(
    name="coder",
    status="InService",
    managed=True,
    mode="p-eagle",
    num_speculative_tokens=7,
    instance_type="ml.p5.48xlarge",
    instance_count=1,
    created_at=NOW,
    age_s=5400.0,
    usd_per_hour=12.5,
    spent_usd=18.75,
    expires_at=NOW + timedelta(hours=4),
    idle_minutes=60,
    grace_minutes=10,
    spec_hash="0a1b2c3d",
    resources=("endpoint/coder",),
)
ORPHAN = EndpointSummary("left", "Orphaned", managed=True, mode="none")
STATUS = """\
name         coder
status       InService
speculation  p-eagle, 7 draft tokens
instance     1 x ml.p5.48xlarge
image        registry/vllm:0.30.0-gpu
model        coder-0a1b2c3d
config       coder-99999999 (requested: coder-0a1b2c3d)
created      2026-11-20 08:00 UTC (2 h ago)
price        12.50 USD/hour, 18.75 USD spent so far
lifetime     deleted at 2026-11-20 12:00 UTC (in 2 h) even if in use
idle         counts as idle after 60 min in which the metrics show no request, checked again 10 min later
warning      an update rolled back"""
FULL = EndpointStatus(
    summary=SERVING,
    arn="arn",
    config_name="coder-99999999",
    config_asked="coder-0a1b2c3d",
    model_name="coder-0a1b2c3d",
    image="registry/vllm:0.30.0-gpu",
    failure_reason=None,
    speculative_config=None,
    lifetime=None,
    engine=None,
    warnings=("an update rolled back",),
    read_at=LATER,
)
SUMMARY = StreamSummary(
    output_tokens=128,
    prompt_tokens=9,
    ttft_ms=41.4,
    total_ms=1600.0,
    otps=80.0,
    tpot_ms=12.0,
    finish_reason="length",
    request_id="r",
    acceptance=Acceptance(3.42, (0.9, 0.8), 37, 259, 91, 7, (3, 4)),
)


def row(*summaries: EndpointSummary) -> list[str]:
    """Return the words of the last row below the header."""
    return render_list(list(summaries), LATER).splitlines()[-1].split()


def test_a_row_of_the_list() -> None:
    words = "coder InService p-eagle K=7 1 x ml.p5.48xlarge 1h30m 12.50 18.75 in 2 h"
    assert row(SERVING) == words.split()
    assert row(SERVING, ORPHAN) == ["left", "Orphaned", "none", *"-----"]


def test_counts_and_amounts_that_autoscaling_changes_are_marked() -> None:
    scaled = replace(SERVING, instance_bounds="1-4")
    assert {"1-4", "~12.50", "~18.75"} <= set(row(scaled))
    text = str(replace(FULL, summary=replace(scaled, instance_count=3)))
    assert "instance     3 x ml.p5.48xlarge (autoscaling: 1-4)" in text
    assert "about 18.75 USD spent so far (at autoscaling's initial instance count)" in text


def test_prices_that_are_upper_bounds_say_so() -> None:
    bound = replace(SERVING, price_at_most=True)
    assert "at most 12.50 at most 18.75" in " ".join(row(bound))
    card = str(replace(FULL, summary=bound))
    assert "at most 12.50 USD/hour, at most 18.75 USD spent so far" in card


def test_the_whole_status() -> None:
    assert str(FULL) == STATUS


def test_a_local_status_names_the_engine_the_overrides_and_the_stand_in_weights() -> None:
    engine = {
        "engine_version": "0.32.0",
        "image": "r/vllm:0.30.0-gpu",
        "pid": 7,
        "overrides": ["eager", "port"],
    }
    local = replace(FULL, engine=engine, target=ServedTarget(stand_in=True, on_cpu=True))
    counted = "overrides    2 for this machine (`peagle-sm status --verbose` lists them)\n"
    assert counted in str(local)
    text = text_of(local.card(verbose=True))
    assert (
        "engine       vLLM 0.32.0 (image: 0.30.0-gpu), process 7\noverrides    eager\n             port\n"
        in text
    )
    assert "weights      small stand-in weights" in text


def test_the_cause_of_a_failure_comes_first_and_the_dump_only_with_verbose() -> None:
    dump = f"It did not answer. Its last words: {'word ' * 99}\nValueError: no room\nat exit"
    failed = replace(FULL, failure_reason=dump)
    text = str(failed)
    assert "reason       ValueError: no room\n             It did not answer. Its last words: word" in text
    assert "at exit" not in text
    assert "at exit" in text_of(failed.card(verbose=True))


def test_the_figures_of_a_request() -> None:
    assert render_summary(SUMMARY) == (
        "TTFT 41 ms · 128 tokens in 1.60 s · 80.0 tokens/s · acceptance length 3.42 of at most 8 · "
        "finish reason: length"
    )


def test_what_the_engine_did_not_say_is_left_out_and_stand_ins_are_named() -> None:
    bare = replace(SUMMARY, output_tokens=None, otps=None, acceptance=None, finish_reason=None)
    first, second = render_summary(bare, ServedTarget(stand_in=True)).splitlines()
    assert first == "TTFT 41 ms"
    assert "small stand-in weights" in second


def test_acceptance_that_a_speculating_endpoint_does_not_report_is_explained() -> None:
    speculating = replace(FULL, speculative_config={"method": "eagle3"})
    silent = replace(SUMMARY, acceptance=None)
    assert acceptance_note(silent, speculating) == (
        "note: the engine speculates but reported no acceptance length: "
        "this needs vLLM 0.29 or later (image: vllm:0.30.0-gpu)"
    )
    assert acceptance_note(silent, speculating, answers=2) == (
        "note: no acceptance length: vLLM reports it only for requests with one answer, not 2"
    )
    assert acceptance_note(SUMMARY, speculating) is None
    assert acceptance_note(silent, FULL) is None
