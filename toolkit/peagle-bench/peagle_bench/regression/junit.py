"""Checks against a record as JUnit XML, which GitHub, GitLab and Jenkins read. Pure.

A failed check is a ``failure``, one that could not be decided an ``error``: a pipeline shows both as not
passed. What does not apply is ``skipped``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from peagle_bench.regression.checks import RecordCheck, figures_text

_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 does not allow, escaped or not."""


def junit_xml(checks: Sequence[RecordCheck], *, name: str, timestamp: str, allow_undecided: bool) -> str:
    """Write one test case for each mode and check; ``name`` is the record's.

    Args:
        checks: in the order of the report.
        name: of the test suite.
        timestamp: of the run, in ISO 8601 without a zone.
        allow_undecided: write undecided checks as skipped.
    """
    kinds = [_kind(check, allow_undecided) for check in checks]
    totals = {
        "tests": str(len(checks)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "time": "0",
    }
    root = Element("testsuites", {"name": "peagle-sm compare --gate", **totals})
    skipped = {"skipped": str(kinds.count("skipped"))}  # Jenkins' schema has it in a suite alone
    suite = SubElement(root, "testsuite", {"name": _clean(name), **totals, **skipped, "timestamp": timestamp})
    for check, kind in zip(checks, kinds, strict=True):
        names = {"classname": f"peagle-sm.{check.mode}", "name": f"{check.name} at {check.load.label}"}
        case = SubElement(suite, "testcase", {**names, "time": "0"})
        if kind is not None:
            outcome = SubElement(case, kind, {"message": _clean(check.reason)})
            if kind != "skipped":
                outcome.set("type", check.name)
                outcome.text = _clean(f"{figures_text(check)}\n{check.reason}")
        elif figures_text(check):
            SubElement(case, "system-out").text = _clean(figures_text(check))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _kind(check: RecordCheck, allow_undecided: bool) -> str | None:
    if check.passed is False:
        return "failure"
    if check.undecided:
        return "skipped" if allow_undecided else "error"
    return None if check.applicable else "skipped"


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
