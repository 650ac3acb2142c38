"""The Lambdas' package: the same files make the same package, and all that a Lambda imports is in it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from peagle_sm.core.guard import SERVICES, digest, object_key, package_files, zipped

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
    content = {"a.py": b"1", "b.py": b"2"}
    assert (
        len({digest(content), digest({**content, "b.py": b"3"}), digest({"a.py": b"1", "b.pyx": b"2"})}) == 3
    )
    # Where one file ends and the next begins counts too.
    assert digest({"a": b"1b", "c": b""}) != digest({"a": b"1", "bc": b""})
    assert object_key(digest(content)).endswith(f"{digest(content)}.zip")


def test_the_package_brings_the_sdk_that_this_installation_has(tmp_path: Path) -> None:
    """The SDK in Lambda's image may be older and not know a field, such as ContainerMetricsConfig."""
    result = _alone(
        tmp_path,
        "import json, boto3, botocore\n"
        "from peagle_guard import boto_aws, sweeper, switch, model_provider, lifetime_provider\n"
        "session = boto3.Session('id', 'key', region_name='eu-central-1')\n"
        f"made = {{name: boto_aws.client(name, session) for name in {sorted(SERVICES)!r}}}\n"
        "shape = made['sagemaker'].meta.service_model.shape_for('ContainerDefinition')\n"
        "print(json.dumps([boto3.__version__, botocore.__version__, botocore.__file__,"
        " 'ContainerMetricsConfig' in shape.members, sorted(made)]))\n",
    )
    boto3_version, botocore_version, place, known, services = json.loads(result)
    assert (boto3_version, botocore_version) == (version("boto3"), version("botocore"))
    assert Path(place).is_relative_to(tmp_path)
    assert known
    assert services == sorted(SERVICES)


def test_each_service_that_the_guard_calls_is_in_the_package() -> None:
    called = {
        name
        for path in RUNTIME.rglob("*.py")
        for name in re.findall(r"\b_?client\(\s*[\"']([\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert called <= SERVICES
    assert SERVICES - called <= {"sts"}, "remove what no module calls"


def test_the_package_is_far_below_lambdas_limits() -> None:
    """50 MB zipped and 250 MB unzipped; a small package also starts faster."""
    package = _package()
    assert len(zipped(package)) < 5_000_000
    assert sum(map(len, package.values())) < 15_000_000
    models = [path.split("/") for path in package if path.startswith("botocore/data/")]
    data = {parts[2] for parts in models if len(parts) > 3}
    assert data == SERVICES


def test_the_licences_of_the_sdk_come_with_it() -> None:
    names = {path.split("-")[0] for path in _package() if ".dist-info/" in path}
    assert names == {"boto3", "botocore", "jmespath", "python_dateutil", "s3transfer", "six", "urllib3"}


def _alone(folder: Path, program: str) -> str:
    """Run a program with the package and the standard library alone."""
    with zipfile.ZipFile(io.BytesIO(zipped(_package()))) as archive:
        archive.extractall(folder)
    start = f"import sys; sys.path = [{str(folder)!r}] + [p for p in sys.path if 'site-packages' not in p]\n"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", start + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_daylight_saving_is_known_from_the_package_alone(tmp_path: Path) -> None:
    """A Lambda's image may have no time zones: then only the vendored ones count."""
    result = _alone(
        tmp_path,
        "import zoneinfo, datetime\n"
        "zoneinfo.reset_tzpath(to=())\n"
        "zone = zoneinfo.ZoneInfo('Europe/Berlin')\n"
        "print([datetime.datetime(2026, m, 1, tzinfo=zone).utcoffset().seconds // 3600 for m in (1, 7)])\n",
    )
    assert result == "[1, 2]"


def test_the_lambdas_find_what_they_share_with_the_toolkit_in_the_package(tmp_path: Path) -> None:
    result = _alone(
        tmp_path,
        "import peagle_guard.sweeper, peagle_guard.switch, peagle_guard.lifetime_provider\n"
        "from peagle_sm.core.plan import tags_and_schedules\n"
        "from peagle_sm.core.spec.hours import parse_hours\n"
        "print(tags_and_schedules.__file__, parse_hours('mon-fri 8:00-19:00 europe/berlin'))\n",
    )
    assert result == f"{tmp_path}/peagle_sm/core/plan/tags_and_schedules.py Mon-Fri 08:00-19:00 Europe/Berlin"
