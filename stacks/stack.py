"""Base of the four stacks."""

from __future__ import annotations

from typing import Any

from aws_cdk import DefaultStackSynthesizer, Stack
from constructs import Construct


class PeagleStack(Stack):
    """Stack with a description; without the CDK's analytics and without its bootstrap version rule.

    The rule would add a parameter, which each update of the stack would have to pass.
    """

    def __init__(self, scope: Construct, construct_id: str, description: str, **more: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            description=description,
            analytics_reporting=False,
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
            **more,
        )
