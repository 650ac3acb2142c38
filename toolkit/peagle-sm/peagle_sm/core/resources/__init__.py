"""Resources of an endpoint: one module for each kind, and `ordered`, the list that everything walks.

A kind says how it is created, described, updated and deleted through boto3, what must exist before it,
whether it is billed, and what it is in CloudFormation.
"""
