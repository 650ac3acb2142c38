"""`peagle-sm compare`: which endpoint is faster, by how much, and whether it is significant."""
