"""`learn data --processing`: the local step in SageMaker Processing jobs."""
