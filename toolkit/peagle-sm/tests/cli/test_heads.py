"""`peagle-sm heads`: what is listed, what is said of a head, a staging from its plan to the spec's lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.paths import weights_dir
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.heads import head_config, target_config, tensors_for, write_head
from tests.hub_server import local_hub
from tests.local.serving import Server


def said(result: Result, code: int = 0) -> str:
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A head that vLLM would load in silence: its map is lost."""
    tensors = {name: each for name, each in tensors_for(head_config()).items() if name != "d2t"}
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(target_config()))
    return write_head(tmp_path / "head", tensors=tensors)


def test_the_list_of_one_models_heads() -> None:
    header, *rows = said(run("heads", "list", "tiny-code")).splitlines()
    assert header.split()[:4] == ["HEAD", "TARGET", "MODE", "TRAINED"]
    assert [row.split() for row in rows] == [
        ["tiny-code-eagle3", "tiny-code", "eagle3", "7", "1", "apache-2.0", "-", "shipped", "(eagle3)"],
        ["tiny-code-p-eagle", "tiny-code", "p-eagle", "12", "2", "apache-2.0", "-", "shipped", "(p-eagle)"],
    ]


def test_the_list_as_json_has_every_head_with_its_source() -> None:
    rows = json.loads(said(run("heads", "list", "--format", "json")))
    assert {row["licence"] for row in rows if row["licence"]} == {"apache-2.0", "nvidia-open-model-license"}
    assert all("icence" in row["checked"] for row in rows if not row["licence"])
    assert all(row["source"] and row["date"] and (row["trained_depth"] or row["checked"]) for row in rows)
    assert "a model" not in said(run("heads", "list", "--format", "quiet"))
    assert "Did you mean 'tiny-code'" in run("heads", "list", "tiny-cod").stderr


def test_a_bad_head_is_told_whole_and_refused(bad: Path) -> None:
    result = run("heads", "check", bad, "--target", bad.parent / "target")
    lines = said(result, 3).splitlines()
    for fact in (
        "P-EAGLE (one pass for all draft tokens)",
        "16 of 64",
        "5,520 parameters, BF16",
        "apache-2.0",
    ):
        assert any(fact in line for line in lines), fact
    hashed = [line.split()[0] for line in lines if re.search(r" [0-9a-f]{64}$", line)]
    assert hashed == ["README.md", "config.json", "model.safetensors"]
    assert lines[-2:] == ["", "error: weights-missing: d2t is missing"]
    assert "must not be deployed: weights-missing\n  next: " in result.stderr


def test_a_bad_head_as_json_and_quiet(bad: Path) -> None:
    result = run("heads", "check", bad, "--format", "json")
    report = json.loads(said(result, 3))
    assert (report["ok"], report["method"]) == (False, "p-eagle")
    assert [fault["check"] for fault in report["faults"]] == ["weights-missing", "target-unknown"]
    assert "d2t is missing" in json.loads(result.stderr)["error"]["message"]
    assert said(run("heads", "check", bad, "--format", "quiet"), 3) == "weights-missing\n"


def test_the_shipped_head_is_whole() -> None:
    assert said(run("heads", "check", "tiny-code")).endswith("\n\nThis head may be deployed.\n")
    assert "target-size" not in said(run("heads", "check", "tiny-code-eagle3", "--format", "quiet"))


def test_what_is_nothing_of_all_that(in_empty_folder: Path) -> None:
    result = run("heads", "check", "tiny-cod")
    assert result.exit_code == 2
    assert "is not a folder, s3://BUCKET/PREFIX, OWNER/NAME on the hub" in result.stderr
    assert "Did you mean 'tiny-code'?" in result.stderr


def test_a_head_on_the_hub(tmp_path: Path) -> None:
    with local_hub() as hub:
        hub.add("owner/head", write_head(tmp_path / "origin"))
        hub.add("owner/gated", tmp_path / "origin", gated=True, token="right")
        environ = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "wrong"}
        head = f"owner/head@{'a' * 40}"
        report = json.loads(said(run("heads", "check", head, "--format", "json", environ=environ)))
        refused = run("heads", "check", "owner/gated", environ=environ)
    assert (report["revision"], report["ok"]) == ("a" * 40, True)
    assert refused.exit_code == 5
    assert "owner/gated is gated: accept its terms first" in refused.stderr
    with local_hub() as closed:
        nobody = {"HF_ENDPOINT": closed.url}
    gone = run("heads", "check", "owner/head", environ=nobody)
    assert gone.exit_code == 6
    assert "the hub does not answer" in gone.stderr


def test_from_the_plan_of_a_staging_to_the_specs_lines(
    server: Server, peagle: Run, in_empty_folder: Path
) -> None:
    server.client("s3").create_bucket(Bucket="cli-heads")
    uri = "s3://cli-heads/models/tiny-code/"
    shown = said(peagle("heads", "stage", "tiny-code", "--to", uri, "--dry-run"))
    assert "target  peagle-sm target" in shown
    assert f"{uri}p-eagle/" in shown
    shipped = [path for part in ("target", "p-eagle") for path in (weights_dir() / part).iterdir()]
    assert f"to upload: {sum(path.stat().st_size for path in shipped) / 1e6:.1f} MB" in shown
    assert "USD a month (list price of S3 Standard in us-east-1" in shown
    assert server.client("s3").list_objects_v2(Bucket="cli-heads").get("Contents", []) == []
    assert peagle("heads", "stage", "tiny-code", "--to", uri).exit_code == 2  # nobody to ask
    spec = in_empty_folder / "peagle.yaml"
    spec.write_text("name: demo\nmodel: tiny-code  # small\n")
    done = said(peagle("heads", "stage", "tiny-code", "--to", uri, "--yes", "--write", str(spec)))
    assert done.endswith(
        f"\nsource: container\nmodel_uri: {uri}\nhead_uri: {uri}p-eagle/\n"
        "speculation:\n  mode: p-eagle\n  draft_head: tiny-code-p-eagle\n"
    )
    assert done.startswith(f"{len(shipped)} files uploaded, 0 existed already; every checksum matches\n")
    written = load_spec(spec)
    assert (written.model_uri, written.head_uri) == (uri, f"{uri}p-eagle/")
    assert "# small" in spec.read_text()
    again = json.loads(said(peagle("heads", "stage", "tiny-code", "--to", uri, "--yes", "--format", "json")))
    assert (again["sent"], again["skipped"]) == (0, len(shipped))
    assert again["manifest"]["head_facts"]["trained_k"] == 12
    assert said(peagle("heads", "check", f"{uri}p-eagle/", "--target", "tiny-code"))


def test_an_address_that_is_none_is_said_before_anybody_must_confirm(server: Server, peagle: Run) -> None:
    result = peagle("heads", "stage", "tiny-code", "--to", "foo")
    assert (result.exit_code, "--yes" in result.stderr) == (2, False)
    assert "'foo' is not an S3 URI; expected s3://BUCKET/PREFIX" in result.stderr


def test_abort_names_what_it_removed(server: Server, peagle: Run) -> None:
    s3 = server.client("s3")
    s3.create_bucket(Bucket="cli-abort")
    s3.create_multipart_upload(Bucket="cli-abort", Key="x/model.safetensors")
    assert said(peagle("heads", "stage", "--to", "s3://cli-abort/x/", "--abort")) == (
        "aborted: x/model.safetensors\n"
    )
    assert said(peagle("heads", "stage", "--to", "s3://cli-abort/x/", "--abort")) == (
        "no incomplete upload below s3://cli-abort/x/\n"
    )
    assert "WHAT is missing" in peagle("heads", "stage", "--to", "s3://cli-abort/x/").stderr


def test_a_deploy_refuses_a_bad_head_before_anything_is_made(
    server: Server, peagle: Run, in_empty_folder: Path
) -> None:
    s3 = server.client("s3")
    s3.create_bucket(Bucket="cli-deploy")
    for part in ("target", "p-eagle"):
        for path in (weights_dir() / part).iterdir():
            s3.upload_file(str(path), "cli-deploy", f"{part}/{path.name}")
    config = json.loads((weights_dir() / "p-eagle" / "config.json").read_text())
    s3.put_object(
        Bucket="cli-deploy", Key="p-eagle/config.json", Body=json.dumps({**config, "ptd_token_id": 2048})
    )
    spec = in_empty_folder / "peagle.yaml"
    spec.write_text(
        "name: bad-head\nmodel: tiny-code\nmodel_uri: s3://cli-deploy/target/\n"
        "head_uri: s3://cli-deploy/p-eagle/\nserving: {env: {SCRIPT_INVOKE: sse}}\n"
    )
    result = peagle("deploy", "--yes", "--unguarded")
    assert result.exit_code == 3
    text = "the head at s3://cli-deploy/p-eagle/: the mask token is 2048; allowed: 0 to 2047"
    assert text in result.stderr
    assert text in peagle("doctor").stdout
    assert "bad-head" not in said(peagle("list"))
    s3.put_object(Bucket="cli-deploy", Key="p-eagle/config.json", Body=json.dumps(config))
    assert said(peagle("deploy", "--yes", "--unguarded"))
