"""What is fast, and is it the same answer: prompts, turns, statistics and reports.

Pure: :mod:`.sample`, :mod:`.stats`, :mod:`.summary`, :mod:`.table`. At the edges: :mod:`.client`
(requests), :mod:`.stack` (a local SageMaker with endpoints on it), :mod:`.provenance`,
:mod:`.leftovers`. Two jobs join them: :mod:`.quickstart` and :mod:`.bench_modes`.
"""
