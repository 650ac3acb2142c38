"""The attention that is planted in the P-EAGLE head to start from."""
