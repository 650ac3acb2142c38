"""What the slices of a request cost the load client."""
