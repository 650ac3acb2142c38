"""Report of results files: HTML page, Markdown for a pull request, tables for a terminal. Pure.

`merging` makes one `view` of the files of a run, `verdict` writes its headline, `tiles` its key figures,
`costs` its prices, `tables` the tables of every output. The page is a list of sections (`speed_up`,
`performance`, `tuning`, `slices`, `trust`) of `blocks` and `charts`, rendered by the files in ``templates``.
"""
