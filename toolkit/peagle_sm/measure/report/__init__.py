"""The report: results files as an HTML page, as Markdown for a pull request, as a summary for a terminal.

Pure but for :mod:`.files`. From the records up: :mod:`.merging` puts files together as a :mod:`.view`,
:mod:`.verdict` says what they show, a module for each section
(:mod:`.speed_up`, :mod:`.throughput`, :mod:`.latency`, :mod:`.acceptance`, :mod:`.curve`, :mod:`.money`,
:mod:`.proof`, :mod:`.origin`) makes its charts and tables, :mod:`.page` sets the page, :mod:`.embedded` puts
the data inside it and reads it back.
"""
