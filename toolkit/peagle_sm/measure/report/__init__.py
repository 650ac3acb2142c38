"""The report: results files as an HTML page, as Markdown for a pull request, as a summary for a terminal.

Pure but for `files`. From the records up: `merging` puts files together as a `view`, `verdict` says what they
show, `costs` what they cost. `charts` and `section` are the building blocks; `speed_up`, `performance` and
`trust` make the sections; `page` sets the HTML page; `tables` makes the rows for the terminal and Markdown.
"""

from __future__ import annotations
