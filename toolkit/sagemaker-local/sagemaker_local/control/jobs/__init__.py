"""Training jobs: what AWS accepts, the records, and the operations."""
