"""A seeded simulator of the guard: whole worlds of endpoints, traffic and faults, driving the shipped
code.

``worlds`` makes a world from a seed, ``cloud`` is an AWS with faults, ``drive`` runs the guard's own
decide and sweep against it, ``rivals`` holds the rules that others publish, ``judge`` says what went
wrong and what was wasted, ``report`` and ``picture`` write ``guard.md`` and ``guard.svg`` in
``docs/explanation``. Times are whole seconds since 1970, UTC.
"""
