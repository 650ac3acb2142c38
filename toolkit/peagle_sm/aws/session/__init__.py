"""Where calls go, and how they are signed; the errors of botocore become ours here."""
