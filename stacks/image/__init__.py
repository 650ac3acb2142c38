"""The stack that builds the serving image, for people without Docker."""
