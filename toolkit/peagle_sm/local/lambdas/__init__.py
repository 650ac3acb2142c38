"""Lambda functions that run their deployed code in an interpreter of their own."""
