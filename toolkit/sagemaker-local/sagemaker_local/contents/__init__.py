"""Initial contents of a local AWS: roles, buckets, JumpStart's catalogue and the stand-in weights."""
