"""Draft heads: find what is wrong with a head before an engine loads it. Pure.

`inspect.inspect_head` takes an open folder; `peagle_sm.check_head` opens one and calls it.
vLLM loads some broken heads without an error (no ``d2t``, a layer missing) and drafts nonsense with them.
"""
