"""`peagle-sm decide` as typed: without an account, and with the local SageMaker's CloudWatch."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from peagle_bench.results.records import ClientHealth
from peagle_sm.aws.control.price_file import Amount, Kept, keep
from tests.bench.report import making
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.rules.files import ROOT

TWO_TYPES = ("--instance-type", "ml.g7e.2xlarge", "--instance-type", "ml.p5.48xlarge")
RATE = ("--otps", "40", "--tokens", "600/200")
TARGETS = ("gpt-oss-20b", "gpt-oss-120b", "qwen3-coder-30b-a3b-instruct", "gemma-4-31b-it")


def decide(*arguments: str | Path) -> Result:
    return run("decide", *arguments)


def document(*arguments: str | Path) -> dict[str, Any]:
    done = decide(*arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    return making.write(making.compared(), tmp_path / "compare.jsonl")


@pytest.mark.parametrize("model", TARGETS)
def test_every_target_has_an_answer_from_its_name_alone(model: str) -> None:
    done = decide(model, *RATE)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Call: hosting costs at least ")
    assert "at your 40 tokens/s" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    for words in ("ml.g7e.2xlarge", "2026-11-26", "2026-11-20", "1+"):
        assert words in done.stdout, words
    assert "no AWS credentials were found" in done.stderr


def test_the_data_has_both_sides_and_the_rate(measured: Path) -> None:
    answer = document("gpt-oss-20b", *RATE, "--measured", measured, "--used", "0.8")
    assert (answer["verdict"], answer["model"], answer["currency"]) == ("call", "gpt-oss-20b", "USD")
    assert answer["calling"]["usd_per_month"]["value"] == pytest.approx(40 * 2_628_000 * 0.51e-6)
    assert {option["mode"] for option in answer["options"]} == {"none", "eagle3", "p-eagle"}
    chosen = answer["options"][answer["chosen"]]
    assert (chosen["mode"], chosen["instances"], chosen["at_least"]) == ("p-eagle", 1, False)
    assert chosen["wins_above"]["value"] == pytest.approx(2287.6, abs=0.1)
    assert answer["sentence"].endswith("it wins above 2,288 tokens/s.")


def test_quiet_prints_the_verdict() -> None:
    assert decide("gpt-oss-20b", *RATE, "--format", "quiet").stdout == "call\n"


def test_the_spec_gives_instances_and_hours(tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    spec.write_text(
        "name: a\nmodel: gpt-oss-20b\nhours: Mon-Sun 00:00-12:00 UTC\nplacement:\n"
        "  {instance_types: [ml.g7e.4xlarge, ml.g7e.2xlarge], instance_count: 2, region: us-west-2}\n"
    )
    answer = document(spec, *RATE, "--usd-per-million", "0.07/0.30")
    assert [option["usd_per_hour"]["value"] for option in answer["options"]] == [4.9977, 4.2039]
    chosen = answer["options"][answer["chosen"]]
    assert (chosen["fewest"], chosen["on"]) == (2, 0.5)
    assert chosen["usd_per_month"]["value"] == pytest.approx(4.2039 * 730)
    assert "50% of the week" in decide(spec, *RATE, "--usd-per-million", "0.07/0.30").stdout


def test_a_price_that_is_only_ec2_s_gives_the_rate_an_interval() -> None:
    words = ("gpt-oss-120b", *RATE, "--instance-type", "ml.p6-b200.48xlarge")
    (option,) = document(*words)["options"]
    assert option["wins_above"]["low"] == pytest.approx(30_141, abs=1)
    assert option["wins_above"]["high"] == pytest.approx(37_676, abs=1)
    assert "37,676 [30,141, 37,676]" in decide(*words).stdout


def test_a_goal_leaves_out_the_loads_that_miss_it(measured: Path) -> None:
    words = ("gpt-oss-20b", *RATE, "--measured", measured)
    free, goal = (document(*words, *more)["options"] for more in ((), ("--goal", "tpot_ms=8")))
    serves = [{row["mode"]: row["serves"]["value"] for row in rows} for rows in (free, goal)]
    assert serves[1]["p-eagle"] < serves[0]["p-eagle"]
    unmet = document(*words, "--goal", "ttft_ms=1")
    assert unmet["verdict"] == "measure"
    assert all("TTFT" in option["misses"][0] for option in unmet["options"])


def test_the_page_has_the_decision_before_the_measurement(measured: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = decide("gpt-oss-20b", *RATE, "--measured", measured, "--html", page)
    assert done.exit_code == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.index('id="host-or-call"') < text.index('id="speed-up"')
    for words in ("Call: hosting", "USD by month", "yours: 40", "synthetic data"):
        assert words in text, words
    alone = tmp_path / "alone.html"
    assert decide("gpt-oss-20b", *RATE, "--html", alone).exit_code == 0
    assert 'id="host-or-call"' in alone.read_text(encoding="utf-8")


def test_requests_of_a_file_give_the_mix_and_a_recording_its_rate(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    rows = [{"time": 3600 * hour, "input_tokens": 600, "output_tokens": 7_200} for hour in range(25)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = document("gpt-oss-20b", "--traffic", path)
    assert answer["traffic"]["otps"] == pytest.approx(2 * 25 / 24)
    assert answer["traffic"]["input_per_output"] == pytest.approx(1 / 12)
    assert (answer["traffic"]["used"], answer["traffic"]["busiest"]) == (None, pytest.approx(1, abs=0.05))
    assert "the rate is of 25 requests in 24.0 hours" in answer["notes"]
    by_requests = document("gpt-oss-20b", "--traffic", path, "--requests-per-s", "0.01")
    assert by_requests["traffic"]["otps"] == pytest.approx(72)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((), 2, "No traffic was given"),
        (("--otps", "40"), 2, "the tokens of a request are not known"),
        (("--endpoint", "live"), 2, "CloudWatch counts the requests of live, not their tokens"),
        (("--otps", "40", "--tokens", "600"), 2, "such as 600/200"),
        (("--otps", "inf", "--tokens", "600/200"), 2, "'inf': give a number"),
        (("--otps", "nan", "--tokens", "600/200"), 2, "'nan': give a number"),
        (("--otps", "1e-300", "--tokens", "600/200"), 2, "allowed: 0.000001 to 1,000,000,000"),
        (("--requests-per-s", "1e9", "--tokens", "600/200"), 2, "the rate is 2e+11"),
        ((*RATE, "--used", "nan"), 2, "'nan': give a number"),
        (("--otps", "40", "--tokens", "600/0"), 2, "of output (more than 0)"),
        ((*RATE, "--usd-per-million", "0/0"), 2, "USD for a million tokens"),
        ((*RATE, "--endpoint", "live"), 2, "--endpoint and --otps both set the rate"),
        ((*RATE, "--serves", "9", *TWO_TYPES), 2, "found 2: ml.g7e.2xlarge, ml.p5.48xlarge"),
        ((*RATE, "--usd-per-hour", "9", *TWO_TYPES), 2, "found 2: ml.g7e.2xlarge, ml.p5.48xlarge"),
        ((*RATE, "--goal", "ttft_ms=500"), 2, "--goal needs --measured"),
        (("--otps", "40", "--requests-per-s", "1", "--tokens", "1/1"), 2, "give only one"),
        (
            (*RATE, "--usd-per-million", "1/1", "--region", "eu-west-3"),
            2,
            "no price known for ml.g7e.2xlarge in eu-west-3",
        ),
        ((*RATE, "--region", "us-west-2"), 2, "no price of tokens is known for gpt-oss-20b in us-west-2"),
        ((*RATE, "--instance-type", "ml.unlisted.large"), 2, "ml.unlisted.large"),
        (("--traffic", "gone.jsonl"), 2, "gone.jsonl"),
    ],
)
def test_what_is_missing_is_said_with_what_is_allowed(
    words: tuple[str, ...], code: int, expected: str, in_empty_folder: Path
) -> None:
    done = decide("gpt-oss-20b", *words)
    assert done.exit_code == code, done.stdout
    assert expected in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_a_model_that_the_catalogue_does_not_have_is_no_missing_file() -> None:
    done = decide("gpt-oss-21b", *RATE)
    assert done.exit_code == 2
    assert "gpt-oss-20b, qwen3-8b" in " ".join(done.stderr.split())


def test_a_model_without_a_p_eagle_head_is_hosted_with_the_head_that_it_has() -> None:
    assert [option["mode"] for option in document("gemma-4-31b-it", *RATE)["options"]] == ["eagle3"]


def test_an_instance_without_a_price_is_left_out_with_a_note() -> None:
    types = ("--instance-type", "ml.g7e.4xlarge", "--instance-type", "ml.g7e.2xlarge")
    done = decide("gpt-oss-20b", *RATE, *types)
    assert done.exit_code == 0
    assert "no price known for ml.g7e.4xlarge in us-east-1: left out" in done.stderr
    assert "ml.g7e.4xlarge" not in done.stdout


def test_a_price_of_yours_is_not_called_bedrock_s() -> None:
    assert "Amazon Bedrock" not in decide("qwen3-8b", *RATE, "--usd-per-million", "0.1/0.2").stdout


def test_autoscaling_is_not_counted_and_the_answer_says_so(tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    spec.write_text("name: a\nmodel: gpt-oss-20b\nautoscaling: {min_instances: 1, max_instances: 4}\n")
    assert "allows 4 at most" in " ".join(decide(spec, *RATE).stdout.split())


def test_loads_that_failed_requests_do_not_count(tmp_path: Path) -> None:
    created = making.compared()
    points = tuple(replace(each, errors={"StreamError": 60}, requests=100) for each in created.points)
    path = making.write(replace(created, points=points), tmp_path / "failed.jsonl")
    answer = document("gpt-oss-20b", *RATE, "--measured", path)
    assert answer["verdict"] == "measure"
    assert answer["sentence"].endswith("60 of 100 requests failed.")


def test_requests_without_times_need_a_rate(tmp_path: Path) -> None:
    path = making.write(making.compared(), tmp_path / "r.jsonl")
    done = decide("gpt-oss-20b", "--traffic", path)
    assert done.exit_code == 2
    assert "has no rate" in done.stderr
    assert "--otps" in done.stderr


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.15.0-gpu-py312", "needs vLLM 0.16.0 or newer"),
        ("lmsysorg/sglang:v0.5", "sglang, which has no p-eagle"),
    ],
)
def test_a_mode_that_the_image_does_not_have(image: str, expected: str, tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    spec.write_text(f"name: a\nmodel: gpt-oss-20b\nsource: container\nimage: {image}\n")
    done = decide(spec, *RATE)
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.split())


def test_a_model_that_nobody_sells_needs_a_price() -> None:
    done = decide("qwen3-8b", *RATE)
    assert done.exit_code == 2
    assert "no price of tokens is known for qwen3-8b" in " ".join(done.stderr.split())
    assert "--usd-per-million" in done.stderr
    assert decide("qwen3-8b", *RATE, "--usd-per-million", "0.1/0.2").exit_code == 0


def test_two_currencies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's list of today, as it is kept, has the model's tokens in yuan."""
    amounts = {kind: Amount(1.0, "CNY", "2026-11-01") for kind in ("input", "output")}
    path = tmp_path / "prices.json"
    keep(path, "us-east-1", "tokens of gpt-oss-20b", Kept(datetime.now(UTC), amounts))
    monkeypatch.setenv("PEAGLE_SM_PRICES", str(path))
    done = decide("gpt-oss-20b", *RATE)
    assert done.exit_code == 2
    assert "two currencies: tokens of gpt-oss-20b in us-east-1 cost CNY, instances USD" in " ".join(
        done.stderr.split()
    )


def test_figures_of_the_stand_in_say_nothing_of_another_model(tmp_path: Path) -> None:
    small = making.write(making.stand_in(), tmp_path / "small.jsonl")
    done = decide("gpt-oss-20b", *RATE, "--measured", small)
    assert done.exit_code == 2
    assert "small stand-in weights" in done.stderr
    prices = ("--usd-per-million", "0.1/0.4", "--usd-per-hour", "0.4")
    own = decide("tiny-code", *RATE, "--measured", small, *prices)
    assert own.exit_code == 0, own.stderr
    assert "small stand-in weights" in own.stdout


def test_figures_of_a_cpu_are_those_of_a_model_for_cpus_alone(tmp_path: Path) -> None:
    created = making.compared()
    header = replace(created.header, figures_of="SmolLM2-135M-Instruct on a CPU")
    path = making.write(replace(created, header=header), tmp_path / "smollm2.jsonl")
    prices = ("--usd-per-million", "0.1/0.4", "--usd-per-hour", "0.4")
    own = decide("smollm2-135m-instruct", *RATE, "--measured", path, *prices)
    assert own.exit_code == 0, own.stderr
    assert "SmolLM2-135M-Instruct on a CPU" in own.stdout
    for other in ("gpt-oss-20b", "qwen3-8b"):
        done = decide(other, *RATE, "--measured", path, *prices)
        assert done.exit_code == 2
        assert "SmolLM2-135M-Instruct on a CPU" in " ".join(done.stderr.split())


def test_figures_of_another_model_are_refused(tmp_path: Path) -> None:
    created = making.compared()
    origins = {arm.name: {"target": "gpt-oss-20b"} for arm in created.arms}
    header = replace(created.header, provenance={**created.header.provenance, "endpoints": origins})
    path = making.write(replace(created, header=header), tmp_path / "compare.jsonl")
    assert decide("gpt-oss-20b", *RATE, "--measured", path).exit_code == 0
    done = decide("gpt-oss-120b", *RATE, "--measured", path)
    assert done.exit_code == 2
    assert "found figures of gpt-oss-20b; they say nothing about gpt-oss-120b" in " ".join(
        done.stderr.split()
    )


def test_an_instance_that_is_not_compared_is_left_out_with_a_note(tmp_path: Path) -> None:
    created = making.compared()
    moved = replace(created, arms=tuple(replace(arm, instance_type="ml.p5.48xlarge") for arm in created.arms))
    done = decide("gpt-oss-20b", *RATE, "--measured", making.write(moved, tmp_path / "moved.jsonl"))
    assert done.exit_code == 0
    assert "was measured on ml.p5.48xlarge: left out" in done.stderr


def test_loads_without_a_rate_are_named_and_never_silently_dropped(tmp_path: Path) -> None:
    """The client was the bottleneck in one mode, and another mode answered nothing."""
    created = making.compared()
    slow = ClientHealth(False, "requests waited for a free connection", 1.0, 0.2, None, True)
    dead: dict[str, dict[str, Any]] = {"none": {"client": slow}, "p-eagle": {"otps": 0.0}}
    mode_of = {arm.name: arm.mode for arm in created.arms}
    points = tuple(replace(point, **dead.get(mode_of[point.arm], {})) for point in created.points)
    path = making.write(replace(created, points=points), tmp_path / "partly.jsonl")
    done = decide("gpt-oss-20b", *RATE, "--measured", path)
    assert done.exit_code == 0, done.stderr
    words = " ".join(done.stderr.split())
    assert "left out: requests waited for a free connection" in words
    assert "left out: no answer has tokens" in words
    nothing = tuple(replace(point, client=slow) for point in created.points)
    path = making.write(replace(created, points=nothing), tmp_path / "nothing.jsonl")
    done = decide("gpt-oss-20b", *RATE, "--measured", path)
    assert done.exit_code == 2
    assert "no load has a rate of one instance" in " ".join(done.stderr.split())


SHOWN = re.findall(
    r"```bash\npeagle-sm (decide [^\n]+)\n```\n\n```text\n(.*?)\n```",
    (ROOT / "docs/how-to/host-or-call.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize(("typed", "printed"), SHOWN, ids=[typed for typed, _ in SHOWN])
def test_the_page_shows_what_the_command_prints(typed: str, printed: str) -> None:
    done = run(*shlex.split(typed))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(printed)


def test_the_page_shows_every_target() -> None:
    assert {typed.split()[1] for typed, _ in SHOWN} == set(TARGETS)


def test_the_page_on_when_not_to_host_begins_with_the_sentences() -> None:
    text = (ROOT / "docs/explanation/when-not.md").read_text(encoding="utf-8")
    first_list = text.split("\n\n")[2]
    rates = ("10", "100", "1000", "10000")
    answers = [document("gpt-oss-20b", "--otps", otps, "--tokens", "600/200") for otps in rates]
    assert first_list.splitlines() == [f"- {answer['sentence']}" for answer in answers]


@pytest.mark.slow
def test_a_day_of_an_endpoint_s_metrics(peagle: Run, spec: Callable[..., str]) -> None:
    path = Path(spec())
    path.write_text(path.read_text() + "lifecycle: {max_lifetime_hours: 72}\n")
    # Requests to an earlier endpoint of this name are in the minute before.
    peagle("local", "clock", "advance", "5m", "--format", "quiet")
    assert peagle("deploy", str(path), "--unguarded", "--yes", "--format", "quiet").exit_code == 0
    prices = ("--usd-per-million", "0.1/0.4", "--usd-per-hour", "0.4")
    words = (str(path), "--endpoint", "demo", "--tokens", "600/200", *prices)
    quiet = peagle("decide", *words)
    assert quiet.exit_code == 2
    assert "CloudWatch has no requests of it" in " ".join(quiet.stderr.split())
    assert peagle("invoke", "demo", "-p", "def f():").exit_code == 0
    young = peagle("decide", *words)
    assert young.exit_code == 2
    assert "allowed: at least an hour" in " ".join(young.stderr.split())
    for hours in ("30h", "2h"):  # the requests before the 30 hours are not of the last day
        for _ in range(3):
            assert peagle("invoke", "demo", "-p", "def f():").exit_code == 0
        peagle("local", "clock", "advance", hours, "--format", "quiet")
    done = peagle("decide", *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    traffic = json.loads(done.stdout)["traffic"]
    assert traffic["otps"] == pytest.approx(3 * 200 / 86_400, rel=0.01)
    assert traffic["busiest"] == pytest.approx(24, rel=0.01)
    missing = peagle("decide", str(path), "--endpoint", "dem", "--tokens", "600/200", *prices)
    assert missing.exit_code == 4
    assert "demo" in missing.stderr
