"""What cdk-nag and the CDK's own validation find in stacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks


def findings(folder: Path, add_stacks: Callable[[App], object]) -> list[str]:
    """Return "RULE CONSTRUCT" for each finding; ``folder`` takes the synthesised app."""
    app = App(outdir=str(folder), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks())
    add_stacks(app)
    with suppress(RuntimeError):  # findings that are errors stop the synthesis; the report has them all
        app.synth()
    report = json.loads((folder / "validation-report.json").read_text())
    return [
        f"{finding['ruleName']} {construct['constructPath']}"
        for part in report["pluginReports"]
        for finding in part["violations"]
        for construct in finding["violatingConstructs"]
    ]
