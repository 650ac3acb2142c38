"""What `deploy` asks says what it will do."""

from __future__ import annotations

import pytest

from peagle_sm.cli.commands.endpoints.deploy import question
from tests.core.support import GPT, plan_of


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        ("absent", "Create demo for 4.20 USD/hour?"),
        ("creating", "An earlier run began to create demo. Continue for 4.20 USD/hour?"),
        ("failed", "demo has failed. Delete it and create it again for 4.20 USD/hour?"),
        ("leaving", "demo is being deleted. Create it again afterwards for 4.20 USD/hour?"),
        ("live", "demo is in service with this spec, but has no lifetime schedule. Create the schedule?"),
    ],
)
def test_the_question_names_what_the_deploy_will_do(found: str, asked: str) -> None:
    assert question(found, plan_of(GPT)) == asked
