"""Report of results files: HTML page, Markdown for a pull request, tables for a terminal.

Pure except `files`. `merging` merges files into a `view`, `verdict` writes the headline, `costs` computes
costs. `charts` and `section` are building blocks; `speed_up`, `performance` and `trust` make the sections;
`slices` has the figures by slice; `page` makes the HTML page; `tables` makes the tables for terminal,
notebook and Markdown, `outcomes` those of one run.
"""

from __future__ import annotations
