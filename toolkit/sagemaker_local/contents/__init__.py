"""What a fresh local AWS holds: roles, buckets, JumpStart's catalogue and the stand-in weights."""
