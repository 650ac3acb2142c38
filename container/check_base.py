#!/usr/bin/env python3
"""Check the base image during the image build; run as ``check_base.py BASE_IMAGE FLOOR [PACKAGE]``.

It fails the build where the base is not pinned by its digest or its package, by default vLLM, is older than
the floor. Standard library only.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, version

PINNED = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")


def fault(base: str, installed: str, floor: str, package: str = "vLLM") -> str | None:
    """Return what is wrong with the base image; None if it is valid."""
    if not PINNED.fullmatch(base):
        return f"BASE_IMAGE: found {base!r}; allowed: REPOSITORY@sha256:DIGEST (see scripts/container-pin)"
    if not installed:
        return f"the base image has no {package}"
    if numbers(installed) < numbers(floor):
        return f"the base image has {package} {installed}; allowed: {floor} and later"
    return None


def numbers(text: str) -> tuple[int, ...]:
    """Return the version's first three numbers: (0, 33, 0) for "0.33.0+cu130"."""
    found = [int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3]]
    return (*found, *[0] * (3 - len(found)))


def main(arguments: list[str]) -> int:
    """Run the command."""
    if len(arguments) not in (2, 3):
        print("usage: check_base.py BASE_IMAGE FLOOR [PACKAGE]", file=sys.stderr)
        return 2
    package = arguments[2] if len(arguments) == 3 else "vLLM"
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = ""
    wrong = fault(arguments[0], installed, arguments[1], package)
    print(f"error: {wrong}" if wrong else f"{package} {installed} in {arguments[0]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
