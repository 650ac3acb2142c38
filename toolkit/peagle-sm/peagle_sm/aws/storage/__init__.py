"""File storage: S3, the Hugging Face hub, and the local cache."""
