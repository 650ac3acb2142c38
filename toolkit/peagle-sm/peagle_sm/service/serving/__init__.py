"""`peagle-sm serve`: OpenAI's API on loopback for one SageMaker endpoint.

Needs the extra `openai`. ``upstream`` signs and sends requests, reads SageMaker's stream and converts its
errors to OpenAI's; ``proxy`` answers requests, starts and drains.
"""

from __future__ import annotations
