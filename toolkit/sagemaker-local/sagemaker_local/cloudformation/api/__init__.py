"""The calls of CloudFormation: requests in, answers out."""
