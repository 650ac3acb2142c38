"""The control planes: one thin function a call."""
