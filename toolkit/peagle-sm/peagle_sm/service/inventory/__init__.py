"""Existing resources: lists, statuses, logs, and the endpoint of each resource."""
