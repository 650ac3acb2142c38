"""Buckets, tables and image repositories."""
