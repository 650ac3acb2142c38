"""`peagle-sm cdk init`, and what the messages say to install."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.words import EXTRAS, install_command
from peagle_sm.service.cdk_project import BOOTSTRAP, write_project
from tests.e2e.page_shell import JSII_CACHE
from tests.rules.files import texts

_NAMES = [
    "app.py",
    "package.json",
    "package-lock.json",
    "stacks",
    "container",
    "cdk.json",
    "requirements.txt",
]


def test_the_table_of_extras_is_that_of_pyproject(root: Path) -> None:
    declared = tomllib.loads((root / "toolkit/peagle-sm/pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    known = {name: set(map(_plain, packages)) for name, packages in declared.items()}
    assert {name: set(map(_plain, packages)) for name, packages in EXTRAS.items()} == known


def _plain(requirement: str) -> str:
    parsed = Requirement(requirement)
    parsed.marker = None
    return str(parsed)


def test_an_install_command_names_the_packages_themselves() -> None:
    assert install_command("openai") == "pip install 'aiohttp>=3.10,<4' 'openai>=2,<4'"


def test_nothing_tells_to_install_a_name_that_is_not_on_the_index() -> None:
    wrong = re.compile(r"pip install[^\n]*['\" ]peagle" + r"-sm(\[|['\"`\s]|$)")
    hits = [
        f"{path}: {line.strip()}"
        for path, text in texts()
        if path.suffix in (".py", ".md", ".sh", ".toml")
        for line in text.splitlines()
        if wrong.search(line)
    ]
    # core/words.py explains why.
    assert [hit for hit in hits if not hit.startswith("toolkit/peagle-sm/peagle_sm/core/words.py")] == []


def test_the_app_is_written_and_synthesises_outside_the_clone(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "infra"
    written = write_project(folder)
    assert [path.name for path in written] == _NAMES
    assert (folder / "container" / "serve").is_file()
    assert json.loads((folder / "cdk.json").read_text()) == {"app": "python3 app.py", **BOOTSTRAP}
    shipped = json.loads((root / "cdk.json").read_text())
    assert shipped["toolkitStackName"] == BOOTSTRAP["toolkitStackName"]
    assert BOOTSTRAP["context"].items() <= shipped["context"].items()
    assert set((folder / "requirements.txt").read_text().splitlines()[1:]) == set(EXTRAS["cdk"])
    out = folder / "cdk.out"
    context = json.dumps({"spec": str(root / "docs" / "examples" / "gpt-oss-20b.yaml")})
    done = subprocess.run(
        [root / ".venv" / "bin" / "python", "app.py"],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(tmp_path),
            **JSII_CACHE,
            "CDK_OUTDIR": str(out),
            "CDK_CONTEXT_JSON": context,
            "CDK_VALIDATION": "false",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "b'!!" not in done.stderr  # jsii's banner about old versions of Node
    assert {path.name for path in out.glob("*.template.json")} == {
        "PeagleGuard.template.json",
        "Peagle-gpt-oss-20b.template.json",
    }


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text("mine")
    with pytest.raises(SpecError, match=r"already exists: .*cdk\.json\. Nothing was written"):
        write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cdk.json"]
    assert (tmp_path / "cdk.json").read_text() == "mine"


def test_an_installation_without_the_app_says_so(tmp_path: Path) -> None:
    with pytest.raises(PeagleError, match="the CDK app is not in"):
        write_project(tmp_path / "new", package=tmp_path / "a" / "b")
    assert not (tmp_path / "new").exists()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "infra"
    target.mkdir()
    # A link to nowhere: it does not exist before, and cannot be written.
    (target / "requirements.txt").symlink_to(tmp_path / "absent" / "requirements.txt")
    with pytest.raises(SpecError, match=r"could not be written to .*infra: No such file or directory"):
        write_project(target)
    assert list(target.iterdir()) == []
