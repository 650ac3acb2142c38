"""A case of a check: what it is shown, and what it must say; nothing where it must be content.

The cases of `peagle_sm/core/checks/SUBJECT.py` are the list `CASES` in `SUBJECT_cases.py` beside this module.
`tests/core/test_checks.py` runs them all and demands one that fails and one that passes of every check.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.checks import ALL_CHECKS, Check
from peagle_sm.core.checks.base import SPEC
from peagle_sm.core.plan.resolve import Context, Draft, resolve
from peagle_sm.core.words import Finding
from tests.core.support import AWS, spec_of


@dataclass(frozen=True)
class Case:
    """``severity`` None: the check must find nothing. ``base`` empty: there is no spec, only a ``fact``."""

    check: str
    base: str = ""
    extra: str = ""
    context: Context = AWS
    fact: Any = None
    severity: str | None = None
    text: str = ""
    catalog: Catalog | None = None

    @property
    def fails(self) -> bool:
        return self.severity is not None

    def draft(self) -> Draft | None:
        if not self.base:
            return None
        return resolve(spec_of(self.base, self.extra), self.context, self.catalog or load_catalog())

    def notes(self) -> list[Finding]:
        check = checks_by_id()[self.check]
        return check.findings(*(() if check.reads == SPEC else (self.fact,)), self.draft())


@cache
def checks_by_id() -> dict[str, Check]:
    return {check.id: check for check in ALL_CHECKS}


@cache
def cases_by_subject() -> tuple[tuple[str, Case], ...]:
    """Every case, with the subject of its file."""
    files = sorted(Path(__file__).parent.glob("*_cases.py"))
    modules = {file.stem.removesuffix("_cases"): f"tests.core.checks.{file.stem}" for file in files}
    return tuple((subject, case) for subject, name in modules.items() for case in import_module(name).CASES)


def all_cases() -> tuple[Case, ...]:
    return tuple(case for _, case in cases_by_subject())
