"""What `peagle-sm cdk init` says to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(("folder", "spec"), [("infra", "../peagle.yaml"), (".", "peagle.yaml")])
def test_the_next_step_names_the_spec_as_cdk_finds_it(in_empty_folder: Path, folder: str, spec: str) -> None:
    Path("peagle.yaml").write_text("name: demo\n", encoding="utf-8")
    result = run("cdk", "init", folder)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(f"npx cdk deploy PeagleGuard Peagle-<name> -c spec={spec}\n")
    assert (in_empty_folder / folder / spec).is_file()
