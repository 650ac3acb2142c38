"""Commands that create, show, invoke, pause and delete endpoints."""
