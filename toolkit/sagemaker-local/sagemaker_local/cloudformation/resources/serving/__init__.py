"""SageMaker's models, endpoints and inference components, and their autoscaling."""
