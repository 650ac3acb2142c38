"""A seeded simulator of the guard: whole worlds of endpoints, traffic and faults, driving the shipped
code.

``worlds`` makes a world from a seed, ``fake_services`` is an AWS with faults, ``guard_run`` runs the guard's
own decide and sweep against it. ``judging`` has the rules that others publish, says what went wrong and what
was wasted, and writes ``guard.md`` and ``guard.svg`` in ``docs/explanation``. Times are whole seconds since
1970, UTC.
"""
