"""Resource types of the local CloudFormation.

A type is a row of `rows` where its verbs are API calls alone. It has a class where it waits (`serving`) or
calls a function (`custom`).
"""
