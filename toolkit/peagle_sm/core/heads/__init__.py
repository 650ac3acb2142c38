"""Draft heads: find what is wrong with a head before an engine loads it. Pure.

    from peagle_sm.core.heads.inspect import inspect_head
    from peagle_sm.core.heads.reading import local_folder

    report = inspect_head(local_folder(path), target=config_of_the_target)

vLLM loads some broken heads without an error (no ``d2t``, a layer missing) and drafts nonsense with them.
"""
