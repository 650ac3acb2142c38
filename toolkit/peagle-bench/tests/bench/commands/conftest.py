"""The fixtures of peagle-sm's command line."""

from tests.cli.conftest import peagle as peagle
from tests.cli.conftest import spec as spec
