"""A seeded simulator of the guard: whole worlds of endpoints, traffic and faults, driving the shipped code.

``worlds`` and ``kinds`` make a world from a seed, ``fake_services`` is an AWS with faults, ``guard_run`` runs
the guard's own code against it, ``judging`` says what went wrong. Times are whole seconds since 1970, UTC.
"""
