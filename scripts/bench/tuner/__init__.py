"""The tuner on simulated endpoints: scripts/simulate-tuner."""
