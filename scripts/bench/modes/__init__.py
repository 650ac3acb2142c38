"""The best K of each mode, and the modes compared at it: scripts/bench-modes."""
