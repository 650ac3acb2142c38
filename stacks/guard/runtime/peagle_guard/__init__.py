"""The guard's Lambdas: what turns endpoints off. Standard library and boto3 only; it stands alone.

``decide`` is pure, and so are ``evidence``, ``hours``, ``limits`` and ``costs``; ``sweep`` drives them over
the small protocol of ``aws``. The handlers are in ``sweeper``, ``switch``, ``model_provider`` and
``lifetime_provider``.
"""
