"""Commands that create, show, use, turn off and delete endpoints."""
