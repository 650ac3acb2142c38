"""`tune --synthetic`, and what its endpoints and its file are refused for, on the local SageMaker.

The engines here are scripted and know nothing of acceptance; tests/e2e/test_step_times.py runs the real one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.report import making
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.serving import Server

SMALL = ("--synthetic", "--k", "1", "--requests", "4", "--concurrency", "1", "--unguarded")
CHAT = {"SCRIPT_INVOKE": "chat", "SCRIPT_CHUNK_DELAY": "0.01", "SCRIPT_CHUNKS": "6"}
RATE = ("--otps", "3000", "--tokens", "600/200")
CONFIG = {"method": "eagle3", "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return making.write(making.step_times(ks=(3, 7)), tmp_path / "made.jsonl")


def test_a_dry_run_shows_endpoints_that_nobody_takes_for_real(peagle: Run, spec: Callable[..., str]) -> None:
    result = peagle("tune", spec("demo"), "--synthetic", "--k", "2,3", "--by", "deployments", "--dry-run")
    assert result.exit_code == 0, result.stderr
    arms = json.loads(result.stdout)
    models = {
        arm: request["parameters"]
        for arm, requests in arms.items()
        for request in requests
        if request["operation"] == "create_model"
    }
    assert sorted(models) == [
        "none",
        "synthetic K=2 acceptance length 1",
        "synthetic K=2 acceptance length 3",
        "synthetic K=3 acceptance length 1",
        "synthetic K=3 acceptance length 4",
    ]
    for arm, model in models.items():
        mode = next(tag["Value"] for tag in model["Tags"] if tag["Key"] == "peagle-sm:mode")
        assert (arm == "none") is (mode == "none")
        assert (arm == "none") is not model["ModelName"].startswith("synthetic-demo-p-eagle-k")
    assert peagle("list", "--format", "quiet").stdout == ""


def test_the_price_is_shown_before_and_another_k_is_another_deployment(
    peagle: Run, spec: Callable[..., str]
) -> None:
    words = ("--synthetic", "--k", "2,3", "--by", "deployments")
    result = peagle("tune", spec("demo"), *words)
    assert result.exit_code == 2
    before = " ".join(result.stderr.split())
    for each in ("5 deployments", "nothing is billed", "another K is another deployment", "wrong by design"):
        assert each in before
    assert peagle("list", "--format", "quiet").stdout == ""


def test_an_engine_that_ignores_the_setting_is_reported_and_nothing_is_left(
    peagle: Run, spec: Callable[..., str]
) -> None:
    result = peagle("tune", spec("demo", **CHAT), *SMALL, "--by", "deployments", "--yes", "--out", "s.jsonl")
    assert result.exit_code == 6, result.stderr
    assert "did not serve synthetic acceptance" in result.stderr
    assert "SYNTHETIC acceptance" in result.stderr
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("mode: none", ("--synthetic",), "found none: synthetic acceptance replaces the acceptance"),
        ("mode: ngram", ("--synthetic",), "found ngram: it drafts only where text repeats"),
        ("mode: p-eagle", ("--synthetic", "--k", "20"), "--k: found 20, too many: "),
        ("mode: p-eagle", ("--synthetic", "--max-k", "3"), "--max-k and --synthetic exclude each other"),
        ("mode: p-eagle", ("--synthetic", "--modes", "eagle3"), "--modes and --synthetic exclude each other"),
        ("mode: p-eagle", ("--synthetic", "--no-write"), "--write and --synthetic exclude each other"),
        ("mode: p-eagle", ("--k", "3"), "--k needs --synthetic"),
    ],
)
def test_bad_input_is_told_before_anything_is_deployed(
    peagle: Run, in_empty_folder: Path, text: str, words: tuple[str, ...], expected: str
) -> None:
    path = in_empty_folder / "s.yaml"
    path.write_text(f"name: demo\nmodel: tiny-code\nspeculation: {{{text}}}\n")
    result = peagle("tune", str(path), "--yes", "--unguarded", *words)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert expected in " ".join(result.stderr.split())
    assert peagle("list", "--format", "quiet").stdout == ""


def test_every_other_command_refuses_such_an_endpoint(
    peagle: Run, server: Server, in_empty_folder: Path
) -> None:
    name = server.deploy(SM_VLLM_SPECULATIVE_CONFIG=json.dumps(CONFIG))
    for words in (
        ("bench", name, "--prompts", "2", "--concurrency", "1"),
        ("compare", name, name.swapcase()),
        ("verify", name, "--baseline", name),
        ("serve", name, "--port", "0"),
        ("serve", name, "--port", "0", "--record", "t.jsonl", "--yes"),
    ):
        refused = peagle(*words)
        assert refused.exit_code == 2, words
        assert "has synthetic acceptance" in " ".join(refused.stderr.split()), words
    assert not Path("t.jsonl").exists()
    assert "ITS ANSWERS ARE WRONG" in " ".join(peagle("status", name).stdout.split())


def test_decide_predicts_a_rate_for_a_stated_acceptance_length_only(made: Path) -> None:
    words = ("gpt-oss-20b", *RATE, "--step-times", made, "--k", "3")
    done = run(
        "decide", *words, "--acceptance-length", "2.1", "--acceptance-length", "3.0", "--format", "json"
    )
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    rates = [each["otps_by_concurrency"]["8"] for each in answer["predictions"]]
    assert rates == pytest.approx([8000 / (0.44 + 5.9 / length) for length in (2.1, 3.0)])
    assert [option["serves"]["value"] for option in answer["options"]] == pytest.approx(rates)
    assert [option["instances"] for option in answer["options"]] == [5, 4]
    low, high = (answer["options"][0]["serves"][end] for end in ("low", "high"))
    assert low < rates[0] < high
    shown = run("decide", *words, "--acceptance-length", "3.0")
    assert "predicted, not measured" in " ".join(shown.stdout.split())
    assert "0.35 USD per million output tokens" in " ".join(shown.stdout.split())
    lines = shown.stdout.replace(str(made), "made.jsonl").splitlines()  # a path is not broken
    assert max(map(len, lines)) <= 80


def test_the_page_of_a_prediction_is_marked(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--step-times", made, "--k", "3", "--acceptance-length", "3", "--html", page)
    assert run("decide", "gpt-oss-20b", *RATE, *words).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "predicted, not measured" in text
    assert "predicted from synthetic step times" in text


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ("gpt-oss-20b", ("--acceptance-length", "0.9"), "found 0.9; allowed at K=3: 1"),
        ("gpt-oss-20b", ("--acceptance-length", "4.1"), "found 4.1; allowed at K=3: 1"),
        ("gpt-oss-20b", ("--acceptance-length", "nan"), "'nan': give a number"),
        ("gpt-oss-20b", (), "--step-times needs --acceptance-length"),
        ("gpt-oss-20b", ("--acceptance-length", "3", "--k", "5"), "has step times of K=3, 7"),
        ("gpt-oss-20b", ("--acceptance-length", "3", "--serves", "9"), "--step-times and --serves both say"),
        ("gpt-oss-120b", ("--acceptance-length", "3"), "they say nothing about gpt-oss-120b"),
    ],
)
def test_decide_refuses_what_the_file_cannot_say(
    made: Path, model: str, words: tuple[str, ...], expected: str
) -> None:
    k = () if "--k" in words else ("--k", "3")
    done = run("decide", model, *RATE, "--step-times", made, *k, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert expected in " ".join(done.stderr.split())


def test_its_file_is_no_measured_rate_and_no_traffic(made: Path, tmp_path: Path) -> None:
    measured = run("decide", "gpt-oss-20b", *RATE, "--measured", made)
    assert measured.exit_code == 2
    assert "a file of `peagle-sm tune --synthetic` and has no measured load" in " ".join(
        measured.stderr.split()
    )
    assert run("cost", made).exit_code == 2
    assert run("decide", "gpt-oss-20b", "--traffic", made, "--otps", "40").exit_code == 2
    other = making.write(making.compared(), tmp_path / "compare.jsonl")
    refused = run("decide", "gpt-oss-20b", *RATE, "--step-times", other, "--acceptance-length", "2")
    assert refused.exit_code == 2
    assert "is a results file of compare; allowed: one of tune --synthetic" in " ".join(
        refused.stderr.split()
    )


def test_step_times_of_a_cpu_say_nothing_about_a_gpu(tmp_path: Path) -> None:
    """A target of one's own has one name on a CPU and on its instance."""
    times = making.step_times()
    header = replace(times.header, figures_of="SmolLM2-135M-Instruct on a CPU")
    path = making.write(replace(times, header=header), tmp_path / "cpu.jsonl")
    done = run("decide", "gpt-oss-20b", *RATE, "--step-times", path, "--acceptance-length", "2")
    assert done.exit_code == 2
    assert "--step-times: found figures of SmolLM2-135M-Instruct on a CPU" in " ".join(done.stderr.split())


def test_a_report_of_step_times_says_what_they_are(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("report", made, "--html", page)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("SYNTHETIC DATA. Synthetic acceptance")
    assert "no rate of a head" in done.stdout
    assert 'id="step-times"' in page.read_text(encoding="utf-8")
    assert "Synthetic acceptance" in run("report", made, "--markdown").stdout


def test_several_k_need_a_choice_and_the_spec_s_k_is_the_default(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text("name: a\nmodel: gpt-oss-20b\nspeculation: {num_speculative_tokens: 7}\n")
    words = (*RATE, "--step-times", made, "--acceptance-length", "3")
    done = run("decide", path, *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["predictions"][0]["k"] == 7
    assert run("decide", "gpt-oss-20b", *words).exit_code == 2


def test_an_instance_without_step_times_is_named(made: Path) -> None:
    types = ("--instance-type", "ml.g7e.2xlarge", "--instance-type", "ml.p5.48xlarge")
    words = ("--step-times", made, "--k", "3", "--acceptance-length", "3", *types)
    done = run("decide", "gpt-oss-20b", *RATE, *words)
    assert done.exit_code == 0, done.stderr
    assert "ml.p5.48xlarge has none" in done.stderr
