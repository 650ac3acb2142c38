"""The best num_speculative_tokens for each concurrency, and the best mode, from few deployments or one.

Pure: `reading` and `window` (what a measurement tells), `levels`, `curve`, `fit`, `predict`, `decide`,
`plan`, `outcome`, `agreement`, `yaml_edit`, `price`, `arms`, `components`; `surface` and `simulate` (made-up
endpoints). At the edge: `side` (one endpoint under load), `strategy` (which K when), `run` (deploy, measure,
delete).
"""
