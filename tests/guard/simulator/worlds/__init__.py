"""Worlds of endpoints, traffic and faults, made from a seed."""
