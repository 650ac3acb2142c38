"""A SageMaker on this machine: the AWS API on a loopback port, with the real vLLM behind each endpoint."""
