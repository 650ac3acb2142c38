"""Lock files: exact pins with the sha256 of every file that may be installed for them. Pure.

A pin is `name==version`, then one `--hash=sha256:…` a line, as pip reads it; comments stand at the head.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(?P<rest>.*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")
_WHEEL = re.compile(r".+?-[^-]+(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")
_PYTHONS = frozenset({"py3", *(f"{kind}3{minor}" for kind in ("py", "cp") for minor in range(11, 15))})


@dataclass(frozen=True)
class Pin:
    """One package of a lock file, and the sha256 of the files that may be installed for it."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name as indexes compare it (PEP 503)."""
        return normal(self.name)

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> list[Pin]:
    """Return the pins of a lock file, in its order.

    Raises:
        ValueError: a line is neither a pin, nor a hash of one, nor a comment.
    """
    pins = []
    for line in _joined(text):
        match = _PIN.fullmatch(line)
        hashes = _HASH.findall(match["rest"]) if match else []
        if not match or _HASH.sub("", match["rest"]).strip():
            raise ValueError(f"{line[:120]!r} is not an exact pin; allowed: name==version --hash=sha256:…")
        pins.append(Pin(match["name"], match["version"], tuple(hashes)))
    return pins


def _joined(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield " ".join(line.split())


def unhashed(text: str) -> list[str]:
    """Return the pins of a lock file that have no hash."""
    return [str(pin) for pin in read_pins(text) if not pin.hashes]


def comments(text: str) -> list[str]:
    """Return the comment lines of a lock file, which stand at its head."""
    return [line for line in text.splitlines() if line.startswith("#")]


def render(head: list[str], pins: list[Pin]) -> str:
    """Return a lock file's text; hashes are sorted, so that a difference shows what changed."""
    lines = [*head]
    for pin in pins:
        parts = [str(pin), *(f"    --hash=sha256:{value}" for value in sorted(set(pin.hashes)))]
        lines += [" \\\n".join(parts)]
    return "\n".join(lines) + "\n"


def with_hashes(pins: list[Pin], hashes: Mapping[str, tuple[str, ...]]) -> list[Pin]:
    """Return the pins with those hashes that an index gave, by `name==version`, and what they had before.

    What they had stays: an index that is out of reach, as PyTorch's own may be, must not empty a line.
    """
    return [
        replace(pin, hashes=tuple(sorted({*pin.hashes, *hashes.get(f"{pin.key}=={pin.version}", ())})))
        for pin in pins
    ]


def hashes_of(pylock: str) -> dict[str, tuple[str, ...]]:
    """Return the hashes in a pylock.toml (PEP 751) of the files that we may install, by `name==version`."""
    by_pin = {}
    for package in tomllib.loads(pylock).get("packages", []):
        files = [*package.get("wheels", [])]
        if "sdist" in package:
            files.append(package["sdist"])
        hashes = {each["hashes"]["sha256"] for each in files if is_ours(_file_name(each))}
        by_pin[f"{normal(package['name'])}=={package['version']}"] = tuple(sorted(hashes))
    return by_pin


def _file_name(entry: Mapping[str, str]) -> str:
    named = entry.get("name") or (entry.get("url") or entry["path"])
    return named.rpartition("/")[2].replace("%2B", "+")


def is_ours(file: str) -> bool:
    """Decide whether a file fits: CPython 3.11 to 3.14 on Linux (glibc) or macOS."""
    wheel = _WHEEL.fullmatch(file)
    if wheel is None:
        return file.endswith((".tar.gz", ".zip"))
    pythons, abi, platforms = wheel["python"].split("."), wheel["abi"], wheel["platform"].split(".")
    stable = "abi3" in abi.split(".") and any(each.startswith("cp3") for each in pythons)
    return (stable or (bool(_PYTHONS & set(pythons)) and not abi.endswith("t"))) and any(
        each == "any" or each.startswith(("manylinux", "linux_x86_64", "linux_aarch64", "macosx"))
        for each in platforms
    )
