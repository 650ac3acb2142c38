"""The spec: the one description of an endpoint, how its file is read and edited, and what is wrong in it."""
