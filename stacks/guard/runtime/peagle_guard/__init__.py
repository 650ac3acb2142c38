"""Lambdas of the guard, which turn unused endpoints off. Standard library and boto3 only.

``decide`` is pure; ``sweeper`` drives it over the small protocol of ``aws``. The handlers
are in ``sweeper``, ``switch``, ``model_provider`` and ``lifetime_provider``.
"""
