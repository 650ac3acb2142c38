"""The CDK stacks: one guard for an account and region, and one stack for each endpoint."""
