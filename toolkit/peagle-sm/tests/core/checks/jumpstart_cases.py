"""What JumpStart's own spec may say of a model, and what each check must then say."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.catalog import Catalog, load_catalog
from tests.core.checks.cases import Case
from tests.core.support import GPT


def entry_with(**fields: Any) -> Catalog:
    catalog = load_catalog()
    entry = catalog.jumpstart["gpt-oss-20b"].model_copy(update=fields)
    return catalog.model_copy(update={"jumpstart": {"gpt-oss-20b": entry}})


CASES = [
    Case("jumpstart-deprecated", GPT),
    Case(
        "jumpstart-deprecated",
        GPT,
        severity="warning",
        text="AWS marks openai-reasoning-gpt-oss-20b 3.38.0 as deprecated",
        catalog=entry_with(deprecated=True),
    ),
    Case(
        "jumpstart-deprecated",
        GPT,
        severity="warning",
        text="vulnerabilities of openai-reasoning-gpt-oss-20b 3.38.0: CVE-2025-1",
        catalog=entry_with(vulnerabilities=("CVE-2025-1",)),
    ),
    Case("jumpstart-message", GPT),
    Case(
        "jumpstart-message",
        GPT,
        severity="info",
        text="handle with care",
        catalog=entry_with(messages=("handle with care",)),
    ),
]
