"""The best num_speculative_tokens for each concurrency, and the best mode, from as few deployments as possible."""
