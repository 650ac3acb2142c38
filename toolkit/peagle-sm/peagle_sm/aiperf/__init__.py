"""An AIPerf transport for SageMaker endpoints: SigV4, response streams, refreshed credentials.

NVIDIA's AIPerf finds it by the entry point group ``aiperf.plugins`` once both are installed in one
environment (``pip install aiperf ./toolkit/peagle-sm`` in a clone)::

    aiperf profile --transport sagemaker --endpoint-type chat --streaming \\
        --url https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/my-endpoint \\
        --model my-model --tokenizer org/model --concurrency 32 --request-count 500

`protocol` says what else the URL may hold. Only `transport` imports AIPerf.
"""
