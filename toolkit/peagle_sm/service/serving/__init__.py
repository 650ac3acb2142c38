"""`peagle-sm serve`: OpenAI's API on loopback, signed and sent to one endpoint. Needs the extra `openai`.

``relay`` (pure) takes SageMaker's frames off a stream, ``responses`` (pure) translates the Responses API,
``answers`` (pure) makes OpenAI errors, ``upstream`` signs and sends, ``proxy`` answers requests, ``running``
starts and drains.
"""
