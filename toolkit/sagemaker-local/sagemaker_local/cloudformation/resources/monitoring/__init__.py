"""Alarms, dashboards and logs, and the topics and queues that alarms and functions send to."""
