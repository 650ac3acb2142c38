"""Figures by slice of the traffic in a report.

`columns` makes the cells, `rows` the rows and sentences for all outputs, `drawing` the page's section.
"""

from __future__ import annotations
