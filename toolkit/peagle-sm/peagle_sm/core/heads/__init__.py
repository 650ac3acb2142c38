"""Checks of draft heads before an engine loads them. Pure.

`inspect.inspect_head` takes an open folder; `peagle_sm.check_head` opens one and calls it.
vLLM loads some broken heads without an error (no ``d2t``, a layer missing) and drafts nonsense with them.
"""
