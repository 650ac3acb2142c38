"""The modes compared turn by turn, one request at a time: what the quickstart and bench-modes measure."""
