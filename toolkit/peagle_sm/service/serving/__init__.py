"""`peagle-sm serve`: OpenAI's API on loopback, signed and sent to one endpoint. Needs the extra `openai`.

``upstream`` signs and sends a request, reads SageMaker's stream and makes OpenAI errors of its errors;
``responses`` (pure) translates the Responses API; ``proxy`` answers requests, starts and drains.
"""

from __future__ import annotations
