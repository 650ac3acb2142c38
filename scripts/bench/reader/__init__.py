"""CPU cost of our stream readers beside plain boto3: scripts/bench-reader."""
