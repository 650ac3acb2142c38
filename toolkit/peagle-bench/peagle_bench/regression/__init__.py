"""Judge a comparison against an earlier one, its record: `peagle-sm compare --gate`."""
