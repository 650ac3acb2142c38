from __future__ import annotations

import gzip
import json
from pathlib import Path

from peagle_bench.workloads import public_datasets
from peagle_bench.workloads.prompt_files import Question


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    packed = tmp_path / "some.jsonl.gz"
    with gzip.open(packed, "wt") as file:
        file.write(json.dumps({"task_id": "T/1", "prompt": "def a():\n", "test": ""}) + "\n\n")
    assert public_datasets.read_human_eval(packed) == [Question("T/1", prompt="def a():", category="code")]
