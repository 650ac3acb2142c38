"""Report of results files: HTML page, Markdown for a pull request, tables for a terminal.

Pure except `files`. `merging` merges files into a `view`, `verdict` writes the headline, `costs` computes
costs. `charts` and `section` are building blocks; `speed_up`, `performance` and `trust` say what each section
shows; `slices` has the figures by slice; `page` collects the HTML page, and `rendering` renders all of it by
the Jinja2 files in ``templates``. `tables` makes the tables for terminal, notebook and Markdown, `outcomes`
those of one run.
"""

from __future__ import annotations
