"""SageMaker's data plane: requests, response streams and their content."""
