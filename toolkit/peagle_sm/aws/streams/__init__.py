"""SageMaker's data plane: requests, response streams, and what they tell."""
