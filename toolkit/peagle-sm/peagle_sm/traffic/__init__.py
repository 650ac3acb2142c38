"""Recorded traffic: what requests asked and got, redacted, in a file.

::

    a request's bytes -> Recorder -> Worker: redacted line -> FileTarget
                        (a queue)    (a process)              (a thread)

``plan`` checks and describes a recording before it starts; ``reading`` reads records back.
"""

from __future__ import annotations
