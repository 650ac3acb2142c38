"""Control planes of AWS services: one thin function per call."""
