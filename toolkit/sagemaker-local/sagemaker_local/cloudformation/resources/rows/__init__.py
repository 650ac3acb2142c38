"""The table of resource types whose verbs are API calls alone: one row a type.

A new type needs a row in one of these modules, or a class in ``resources/serving.py``, and then
``scripts/lib/cfn_schemas.py``.
"""

from sagemaker_local.cloudformation.resources.by_table import OnEach, Row
from sagemaker_local.cloudformation.resources.rows import access, functions, monitoring, serving, storage

ROWS: dict[str, Row | OnEach] = {
    **storage.ROWS,
    **access.ROWS,
    **monitoring.ROWS,
    **functions.ROWS,
    **serving.ROWS,
}
