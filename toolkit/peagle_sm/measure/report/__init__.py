"""The report: results files as an HTML page, as Markdown for a pull request, as a summary for a terminal.

All pure; `cli/commands/report.py` reads and writes the files. From the records up: :mod:`.view` puts files
together, :mod:`.verdict` says what they show, the section modules (:mod:`.speed`, :mod:`.latency`,
:mod:`.acceptance`, :mod:`.curve`, :mod:`.money`, :mod:`.proof`, :mod:`.origin`) make charts and tables,
:mod:`.page` sets the page, :mod:`.embedded` puts the data inside it and reads it back.
"""
