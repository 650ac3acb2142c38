"""Lambda functions that run their deployed code in an interpreter of their own.

For the assembly: ``lambdas = Lambdas(moto=…, clock=…, url="http://localhost:PORT", directory=…)``, and
``await lambdas.close()`` at the end. The front gives requests for which ``InvokeApi(lambdas).takes(request)``
to its ``handle``. The scheduler takes ``lambdas`` as its functions.
"""

from sagemaker_local.lambdas.front import InvokeApi
from sagemaker_local.lambdas.runner import Outcome
from sagemaker_local.lambdas.service import Lambdas

__all__ = ["InvokeApi", "Lambdas", "Outcome"]
