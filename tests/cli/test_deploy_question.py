"""What `deploy` asks says what it will do."""

from __future__ import annotations

import pytest

from peagle_sm.cli.commands.endpoints.deploy import question
from tests.core.support import GPT, plan_of


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        ("absent", "Create demo for 4.20 USD/hour?"),
        ("creating", "Go on with demo, which an earlier run began to create, for 4.20 USD/hour?"),
        ("failed", "Delete demo, which has failed, and create it again for 4.20 USD/hour?"),
        ("leaving", "Create demo again for 4.20 USD/hour, once its deletion is over?"),
        ("live", "demo is in service with this spec, without a lifetime limit. Arm one?"),
    ],
)
def test_the_question_names_what_the_deploy_will_do(found: str, asked: str) -> None:
    assert question(found, plan_of(GPT)) == asked
