"""Packs on the real engine: a scorecard from the command line, clean passes, and the seeded faults found."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from peagle_bench.benchmark.acceptance import metrics_page
from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.packs import load_pack
from peagle_bench.packs.run import PackDependencies, PackOptions, run_packs
from peagle_bench.results.records import PackRecord
from peagle_bench.verify.engines import EndpointEngine
from peagle_sm.aws.session import local_server
from scripts.bench.comparison import dependencies
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.pack_endpoints import CLEAN, LOCAL_FAULTS, OTHER, PLAIN, SHORT, specs, write_plugin

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
SEED = 1000
#: Context in tokens and units of each pack. The stand-in heads were trained on 496 tokens.
SIZES = {
    "rag": (480, 16),
    "long-context": (480, 12),
    "agents": (576, 12),
    "guardrails": (8192, 6),
    "structured-output": (8192, 2),
}
#: Not the pack adversarial: it compares speeds, and no test may do that.
CLEAN_RUNS = ("rag", "long-context", "guardrails", "structured-output")
#: Pack, fault, and the check that must fail.
FAULTS = (
    ("rag", SHORT, "acceptance by length"),
    ("long-context", OTHER, "identity"),
    ("agents", SHORT, "prefix cache"),
    ("guardrails", "draft-tokens", "verified"),
    ("guardrails", "keeps-generating", "cancelled"),
    ("structured-output", "no-format", "forms"),
)


@pytest.fixture(scope="module")
def stack(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    """The endpoints of all packs that are tried here."""
    stack.deploy(specs(write_plugin(tmp_path_factory.mktemp("plugin"))), together=False)
    return stack


def row_of(stack: LocalStack, pack: str, arm: str, folder: Path) -> PackRecord:
    """Run a pack on an endpoint beside the plain one."""
    session = stack.session
    described = [describe_endpoint(session, name) for name in (PLAIN, arm)]
    around = PackDependencies(
        dependencies(stack, SEED, lambda line: None),
        lambda arm: EndpointEngine(session, arm.endpoint, arm.component),
        lambda arm: metrics_page(session, arm),
    )
    context, units = SIZES[pack]
    options = PackOptions(SEED, units, context)
    done = run_packs([nullcontext(described)], [load_pack(pack)], folder / "run.jsonl", options, around)
    (record,) = done.results.packs
    return record


@pytest.mark.parametrize("pack", CLEAN_RUNS)
def test_a_clean_run_passes(stack: LocalStack, pack: str, tmp_path: Path) -> None:
    record = row_of(stack, pack, CLEAN, tmp_path)
    assert record.passed is True, record


@pytest.mark.parametrize(("pack", "fault", "check"), FAULTS)
def test_a_seeded_fault_fails_the_check_for_it(
    stack: LocalStack, pack: str, fault: str, check: str, tmp_path: Path
) -> None:
    if fault in LOCAL_FAULTS:
        local = local_server.fault_of({**LOCAL_FAULTS[fault], "endpoint": CLEAN})
        added = local_server.add_fault(stack.port, local)
        try:
            record = row_of(stack, pack, CLEAN, tmp_path)
        finally:
            local_server.clear_faults(stack.port, [added["id"]])
    else:
        record = row_of(stack, pack, fault, tmp_path)
    assert record.passed is False, record
    assert check in [each.name for each in record.checks if each.passed is False], record


def test_the_scorecard_from_the_command_line(stack: LocalStack, tmp_path: Path) -> None:
    port = str(stack.port)
    size = ("--context", "480", "--prompts", str(SIZES["rag"][1]), "--out", tmp_path / "r.jsonl")
    arms = (PLAIN, CLEAN, "--packs", "rag")
    result = run("compare", *arms, *size, "--local-port", port, "--format", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert [(row["pack"], row["result"]) for row in report["packs"]] == [("rag", "pass")], report
    assert report["stand_in_weights"] is True
    page = tmp_path / "packs.html"
    assert run("report", tmp_path / "r.jsonl", "--html", page).exit_code == 0
    assert "Workload packs" in page.read_text()
