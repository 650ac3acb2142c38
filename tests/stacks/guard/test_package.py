"""The Lambdas' package: the same files make the same package, and all that a Lambda imports is in it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

from peagle_sm.core.guard_package import digest, object_key, package_files, zipped

RUNTIME = Path(__file__).parents[3] / "stacks" / "guard" / "runtime"


def _package() -> dict[str, bytes]:
    return package_files(RUNTIME, files("tzdata"))


def test_two_builds_are_equal_to_the_byte() -> None:
    assert zipped(_package()) == zipped(_package())


def test_neither_dates_nor_caches_change_it(tmp_path: Path) -> None:
    package = tmp_path / "peagle_guard"
    package.mkdir()
    (package / "sweeper.py").write_text("1\n")
    before = package_files(tmp_path, files("tzdata"))
    cache = package / "__pycache__"
    cache.mkdir()
    (cache / "sweeper.cpython-313.pyc").write_bytes(b"x")
    (package / ".DS_Store").write_bytes(b"x")
    (package / "sweeper.py").touch()
    after = package_files(tmp_path, files("tzdata"))
    assert digest(before) == digest(after)
    assert "peagle_guard/sweeper.py" in after


def test_a_changed_file_is_another_package() -> None:
    one = {"a.py": b"1", "b.py": b"2"}
    assert len({digest(one), digest({**one, "b.py": b"3"}), digest({"a.py": b"1", "b.pyx": b"2"})}) == 3
    # Where one file ends and the next begins counts too.
    assert digest({"a": b"1b", "c": b""}) != digest({"a": b"1", "bc": b""})
    assert object_key(digest(one)).endswith(f"{digest(one)}.zip")


def test_daylight_saving_is_known_from_the_package_alone(tmp_path: Path) -> None:
    """A Lambda's image may have no time zones: then only the vendored ones count."""
    with zipfile.ZipFile(io.BytesIO(zipped(_package()))) as archive:
        archive.extractall(tmp_path)
    program = (
        f"import sys; sys.path = [{str(tmp_path)!r}] + [p for p in sys.path if 'site-packages' not in p]\n"
        "import zoneinfo, datetime\n"
        "zoneinfo.reset_tzpath(to=())\n"
        "zone = zoneinfo.ZoneInfo('Europe/Berlin')\n"
        "print([datetime.datetime(2026, m, 1, tzinfo=zone).utcoffset().seconds // 3600 for m in (1, 7)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[1, 2]"
