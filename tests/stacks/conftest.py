"""The CDK's process starts with the first import of aws_cdk and reads its settings then: hence here."""

import os

# aws-cdk-lib's validation takes seconds a stack; test_review turns it on for one run over all examples.
os.environ.setdefault("CDK_VALIDATION", "false")
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
