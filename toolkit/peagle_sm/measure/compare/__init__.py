"""Which of several endpoints is faster, by how much, and whether the data can tell: `peagle-sm compare`."""
