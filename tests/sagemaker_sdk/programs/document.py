"""Runs each example of docs/how-to/sagemaker-sdk.md on its own, in order; prints what they print."""

from __future__ import annotations

import contextlib
import io
import json
import os

from offline import TRIED  # type: ignore[import-not-found]  # isort: skip

said = []
for text in json.loads(os.environ["EXAMPLES"]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "example", "exec"), {"__name__": "__main__"})
    said.append(out.getvalue())
print("\n" + json.dumps({"said": said, "tried": sorted(TRIED)}))
