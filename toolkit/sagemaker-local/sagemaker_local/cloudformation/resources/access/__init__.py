"""Roles and their policies, keys, and whether a role may be passed to a service."""
