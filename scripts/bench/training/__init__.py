"""What a training step needs: memory and time by sequence length and partitions."""
