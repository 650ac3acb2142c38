"""The project's own security checks: rules over what it ships, and known advisories against what it pins."""
