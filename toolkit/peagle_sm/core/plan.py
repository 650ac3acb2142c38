"""EndpointSpec -> Plan: the exact requests in order, their price, the memory fit and the findings."""

from __future__ import annotations

from peagle_sm.core.records import Context, Finding, MemoryFit, Names, Plan, Request, Severity

__all__ = ["Context", "Finding", "MemoryFit", "Names", "Plan", "Request", "Severity"]
