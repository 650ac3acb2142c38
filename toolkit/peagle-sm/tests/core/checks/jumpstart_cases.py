"""What JumpStart's own spec may say of a model, and what each check must then say."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.catalog import Catalog, load_catalog
from tests.core.checks.cases import Case, info, warning
from tests.core.support import GPT


def entry_with(**fields: Any) -> Catalog:
    catalog = load_catalog()
    entry = catalog.jumpstart["gpt-oss-20b"].model_copy(update=fields)
    return catalog.model_copy(update={"jumpstart": {"gpt-oss-20b": entry}})


CASES = [
    Case("jumpstart-deprecated", GPT),
    warning(
        "jumpstart-deprecated",
        "AWS marks openai-reasoning-gpt-oss-20b 3.38.0 as deprecated",
        GPT,
        catalog=entry_with(deprecated=True),
    ),
    warning(
        "jumpstart-deprecated",
        "vulnerabilities of openai-reasoning-gpt-oss-20b 3.38.0: CVE-2025-1",
        GPT,
        catalog=entry_with(vulnerabilities=("CVE-2025-1",)),
    ),
    info("jumpstart-deprecated", "handle with care", GPT, catalog=entry_with(messages=("handle with care",))),
]
