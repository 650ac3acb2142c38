"""Results files: records, reading and writing, and provenance."""
