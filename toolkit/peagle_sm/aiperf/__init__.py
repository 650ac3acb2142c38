"""An AIPerf transport for SageMaker endpoints: SigV4, response streams, refreshed credentials.

NVIDIA's AIPerf finds it by the entry point group ``aiperf.plugins`` once both are installed in one
environment (``pip install aiperf peagle-sm``)::

    aiperf profile --url sagemaker://my-endpoint --model my-model --tokenizer org/model \\
        --endpoint-type chat --streaming --concurrency 32 --request-count 500

`address` says what a ``sagemaker://`` URL may hold. Only `transport` imports AIPerf.
"""
