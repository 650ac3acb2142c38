"""Modules are neither fragments nor heaps. Both lists may only become shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.files import ROOT, python_files

#: A module with fewer lines is a fragment: it belongs into the module that uses it.
FEWEST_LINES = 60
#: A module with more lines is several things.
MOST_LINES = 500

MAY_BE_SHORT = """
container/check_base.py
container/peagle_gate/emf.py
container/peagle_gate/start.py
container/plugins/peagle_cpu_fixes/peagle_cpu_fixes/sampling.py
container/plugins/peagle_cpu_fixes/peagle_cpu_fixes/starting.py
container/plugins/peagle_cpu_fixes/peagle_cpu_fixes/worker.py
container/plugins/peagle_runtime_k/peagle_runtime_k/drafting.py
container/plugins/peagle_runtime_k/peagle_runtime_k/requests.py
stacks/guard/asset.py
stacks/guard/runtime/peagle_guard/clients.py
stacks/guard/runtime/peagle_guard/costs.py
stacks/guard/runtime/peagle_guard/schedules.py
stacks/guard/runtime/peagle_guard/sweeper.py
stacks/guard/runtime/peagle_guard/switch.py
stacks/guard/shipped.py
stacks/image/image_stack.py
stacks/image/reasons.py
stacks/planning.py
toolkit/peagle_sm/aws/control/alarms.py
toolkit/peagle_sm/aws/control/components.py
toolkit/peagle_sm/aws/control/nearest.py
toolkit/peagle_sm/aws/control/tagging.py
toolkit/peagle_sm/aws/readers/head.py
toolkit/peagle_sm/aws/readers/identity.py
toolkit/peagle_sm/aws/readers/network.py
toolkit/peagle_sm/aws/readers/reservation.py
toolkit/peagle_sm/aws/session/folders.py
toolkit/peagle_sm/aws/storage/public_file.py
toolkit/peagle_sm/cli/chat/bar.py
toolkit/peagle_sm/cli/chat/keys.py
toolkit/peagle_sm/cli/chat/spend.py
toolkit/peagle_sm/cli/commands/cdk.py
toolkit/peagle_sm/cli/commands/checks.py
toolkit/peagle_sm/cli/commands/completion.py
toolkit/peagle_sm/cli/commands/guard.py
toolkit/peagle_sm/cli/commands/guard_status.py
toolkit/peagle_sm/cli/commands/guard_sweep.py
toolkit/peagle_sm/cli/commands/guard_uninstall.py
toolkit/peagle_sm/cli/commands/heads.py
toolkit/peagle_sm/cli/commands/heads_check.py
toolkit/peagle_sm/cli/commands/heads_list.py
toolkit/peagle_sm/cli/commands/list.py
toolkit/peagle_sm/cli/commands/local.py
toolkit/peagle_sm/cli/commands/local_down.py
toolkit/peagle_sm/cli/commands/local_status.py
toolkit/peagle_sm/cli/commands/logs.py
toolkit/peagle_sm/cli/commands/pause.py
toolkit/peagle_sm/cli/commands/schema.py
toolkit/peagle_sm/cli/commands/wait.py
toolkit/peagle_sm/cli/confirm.py
toolkit/peagle_sm/cli/connect.py
toolkit/peagle_sm/cli/delete_text.py
toolkit/peagle_sm/cli/fault_text.py
toolkit/peagle_sm/cli/heads_sources.py
toolkit/peagle_sm/cli/openai_text.py
toolkit/peagle_sm/cli/output.py
toolkit/peagle_sm/cli/report_text.py
toolkit/peagle_sm/cli/signals.py
toolkit/peagle_sm/cli/spec_file.py
toolkit/peagle_sm/cli/table.py
toolkit/peagle_sm/cli/words.py
toolkit/peagle_sm/core/catalog/parallel_drafting.py
toolkit/peagle_sm/core/checks/heads.py
toolkit/peagle_sm/core/checks/money.py
toolkit/peagle_sm/core/checks/roles.py
toolkit/peagle_sm/core/display/markup.py
toolkit/peagle_sm/core/extras.py
toolkit/peagle_sm/core/failure_words.py
toolkit/peagle_sm/core/guard/names.py
toolkit/peagle_sm/core/heads/names.py
toolkit/peagle_sm/core/heads/selection.py
toolkit/peagle_sm/core/heads/storage.py
toolkit/peagle_sm/core/jumpstart/changes.py
toolkit/peagle_sm/core/plan/component.py
toolkit/peagle_sm/core/plan/cost.py
toolkit/peagle_sm/core/plan/resting.py
toolkit/peagle_sm/core/plan/tags.py
toolkit/peagle_sm/core/spec/utf8.py
toolkit/peagle_sm/core/spec/yaml_keys.py
toolkit/peagle_sm/core/words.py
toolkit/peagle_sm/measure/bare_server.py
toolkit/peagle_sm/measure/bench_notes.py
toolkit/peagle_sm/measure/compare/order.py
toolkit/peagle_sm/measure/load/arrivals.py
toolkit/peagle_sm/measure/load/desk.py
toolkit/peagle_sm/measure/load/events.py
toolkit/peagle_sm/measure/load/health.py
toolkit/peagle_sm/measure/needs.py
toolkit/peagle_sm/measure/notebook/report.py
toolkit/peagle_sm/measure/ranks.py
toolkit/peagle_sm/measure/report/cautions.py
toolkit/peagle_sm/measure/report/files.py
toolkit/peagle_sm/measure/report/line_names.py
toolkit/peagle_sm/measure/report/money.py
toolkit/peagle_sm/measure/report/runs.py
toolkit/peagle_sm/measure/tune/against.py
toolkit/peagle_sm/measure/tune/evidence.py
toolkit/peagle_sm/measure/tune/pace.py
toolkit/peagle_sm/measure/tune/plan.py
toolkit/peagle_sm/measure/tune/reading.py
toolkit/peagle_sm/measure/tune/yaml_edit.py
toolkit/peagle_sm/measure/verify/names.py
toolkit/peagle_sm/measure/verify/verdict.py
toolkit/peagle_sm/measure/workloads/fetching.py
toolkit/peagle_sm/measure/workloads/human_eval.py
toolkit/peagle_sm/measure/workloads/mt_bench.py
toolkit/peagle_sm/measure/workloads/synthetic.py
toolkit/peagle_sm/service/heads/engine_check.py
toolkit/peagle_sm/service/heads/naming.py
toolkit/peagle_sm/service/lifecycle/capacity.py
toolkit/peagle_sm/service/notebook/asking.py
toolkit/peagle_sm/service/planning/mending.py
toolkit/sagemaker_local/aws_facts.py
toolkit/sagemaker_local/clock.py
toolkit/sagemaker_local/cloudformation/capabilities.py
toolkit/sagemaker_local/cloudformation/clients.py
toolkit/sagemaker_local/cloudformation/errors.py
toolkit/sagemaker_local/cloudformation/graph.py
toolkit/sagemaker_local/cloudformation/paging.py
toolkit/sagemaker_local/cloudformation/resources/metadata.py
toolkit/sagemaker_local/cloudformation/tools.py
toolkit/sagemaker_local/cloudformation/types.py
toolkit/sagemaker_local/contents/jumpstart.py
toolkit/sagemaker_local/control/component_describe.py
toolkit/sagemaker_local/control/events.py
toolkit/sagemaker_local/control/health.py
toolkit/sagemaker_local/control/settings.py
toolkit/sagemaker_local/control/stock.py
toolkit/sagemaker_local/control/transitions.py
toolkit/sagemaker_local/engine/checks.py
toolkit/sagemaker_local/engine/image.py
toolkit/sagemaker_local/engine/model.py
toolkit/sagemaker_local/engine/pins.py
toolkit/sagemaker_local/errors.py
toolkit/sagemaker_local/faults/events.py
toolkit/sagemaker_local/faults/refusals.py
toolkit/sagemaker_local/faults/wires.py
toolkit/sagemaker_local/lambdas/unpack.py
toolkit/sagemaker_local/other_services/s3.py
toolkit/sagemaker_local/other_services/tagging.py
toolkit/sagemaker_local/paths.py
toolkit/sagemaker_local/process/status.py
toolkit/sagemaker_local/runtime/endpoint_events.py
toolkit/sagemaker_local/runtime/logs.py
toolkit/sagemaker_local/wire/eventstream.py
"""

MAY_BE_LONG = """
"""


def _product() -> list[Path]:
    """The modules of the product; a package's face (``__init__.py``, ``__main__.py``) may be of any size."""
    return [path for path in python_files("toolkit", "stacks", "container") if not path.stem.startswith("__")]


def _lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("fewest", "most", "listed", "advice"),
    [
        (FEWEST_LINES, None, MAY_BE_SHORT, "fold it into the module that uses it"),
        (0, MOST_LINES, MAY_BE_LONG, "split it, each part one thing"),
    ],
    ids=["short", "long"],
)
def test_a_module_is_neither_short_nor_long(fewest: int, most: int | None, listed: str, advice: str) -> None:
    allowed = set(listed.split())
    sizes = {str(path): _lines(path) for path in _product()}
    odd = {path for path, lines in sizes.items() if lines < fewest or (most is not None and lines > most)}
    said = [f"{path} has {sizes[path]} lines: {advice}" for path in sorted(odd - allowed)]
    said += [f"{path} needs no exception any more: take it off the list" for path in sorted(allowed - odd)]
    assert not said, "\n".join(said)
