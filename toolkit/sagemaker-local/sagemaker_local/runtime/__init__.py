"""SageMaker Runtime: invocations, response streams and the OpenAI route, with their metrics and logs."""
