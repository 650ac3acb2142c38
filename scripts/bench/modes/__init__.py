"""K of each head on this machine, and the modes compared at it, by machine kind: scripts/bench-modes."""
