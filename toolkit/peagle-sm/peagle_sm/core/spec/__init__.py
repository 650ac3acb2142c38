"""The spec of an endpoint: fields, parsing, editing and validation."""
