"""One name of a class means one thing. The list may only become shorter."""

from __future__ import annotations

import ast
from collections import Counter

from tests.rules.files import ROOT, python_files

#: These still stand for several things; the public names of `peagle_sm` are among them.
SHARED = """
Acceptance Choice Context Endpoint Estimate Figure Fleet Job Look Measured Record Report Result
Scale Series Settings Shape Watched Window
"""


def test_no_two_modules_have_a_class_of_one_name() -> None:
    found: Counter[str] = Counter()
    for path in python_files("toolkit", "stacks"):
        if path.parts[1] == "sagemaker_local":
            continue
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name] += 1
    shared = {name for name, count in found.items() if count > 1}
    allowed = set(SHARED.split())
    assert shared <= allowed, f"give each its own name, or make one class of them: {sorted(shared - allowed)}"
    assert allowed <= shared, f"take off the list: {sorted(allowed - shared)}"
