"""`python -m peagle_sm` is `peagle-sm`."""

from peagle_sm.cli import main

main()
