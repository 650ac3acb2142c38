"""Draft heads: what is wrong with one is said before an engine loads it. Pure.

    from peagle_sm.core.heads import inspect_head, local_folder

    report = inspect_head(local_folder(path), target=config_of_the_target)

vLLM loads some broken heads without a word (no ``d2t``, a layer missing) and drafts nonsense with them.
"""

from peagle_sm.core.heads.fault import FileRecord, HeadFault, HeadRefused, HeadReport
from peagle_sm.core.heads.inspect import inspect_files, inspect_head
from peagle_sm.core.heads.reading import Folder, local_folder

__all__ = [
    "FileRecord",
    "Folder",
    "HeadFault",
    "HeadRefused",
    "HeadReport",
    "inspect_files",
    "inspect_head",
    "local_folder",
]
