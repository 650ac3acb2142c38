"""Files: S3, and the Hugging Face hub."""
