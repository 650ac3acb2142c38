#!/usr/bin/env python3
"""The CDK app: guard, a stack for each spec of `-c spec=…`, on wish PeagleImage and PeagleTraining.

Without `-c spec=…` it takes ./peagle.yaml, if there is one. It calls no AWS and reads no clock.
Prices are those that `peagle-sm plan` kept, else the catalogue's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Node 20 works with these libraries, and `doctor` reports that it is too old. jsii's own banner about it is a
# dozen lines of Python bytes, which would hide the app's messages.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")

import jsii
from aws_cdk import App, Environment

from peagle_sm.core.errors import PeagleError
from peagle_sm.core.plan.resolve import DEFAULT_REGION
from stacks.endpoint_stack import EndpointStack
from stacks.guard.guard_stack import GuardStack
from stacks.specs import plan_for, read_context


def build(app: App, environment: Mapping[str, str], default_spec: Path | None = None) -> None:
    """Add the stacks that the app's context asks for; the CDK names region and account in ``environment``.

    ``default_spec`` is used if the context has no specs and the file exists.

    Raises:
        PeagleError: the context or a spec is not acceptable.
    """
    context = read_context(app.node.get_all_context(), default_spec)
    region = context.region or environment.get("CDK_DEFAULT_REGION") or DEFAULT_REGION
    stack_environment = Environment(region=context.region)
    if context.image:
        # With its own file-system asset, so only where it is asked for.
        from stacks.image_stack import ImageStack

        ImageStack(app, env=stack_environment)
    if context.training:
        from stacks.training_stack import TrainingStack

        TrainingStack(app, env=stack_environment)
    plans = [plan_for(spec, region, context.stand_ins, environment) for spec in context.specs]
    guard = GuardStack(app, env=stack_environment)
    for plan in plans:
        stack = EndpointStack(app, plan, context.email, stack_environment)
        stack.add_stack_dependency(guard, "it imports the guard's exports")


def main() -> int:
    """Synthesise; what is wrong is told in one line."""
    try:
        app = App(analytics_reporting=False)
        build(app, os.environ, Path("peagle.yaml"))
        app.synth()
    except PeagleError as error:
        parts = [error.message.rstrip(". "), error.next_step or ""]
        print("error: " + " ".join(". ".join(filter(None, parts)).split()), file=sys.stderr)
        return error.exit_code
    except (jsii.errors.JSIIError, RuntimeError) as error:  # jsii raises both
        first = next(iter(str(error).strip().splitlines()), "")
        print(f"error: the CDK refuses the stacks: {first}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
