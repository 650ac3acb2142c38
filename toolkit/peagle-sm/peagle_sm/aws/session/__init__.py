"""Sessions, signing, and the mapping of botocore's errors."""
