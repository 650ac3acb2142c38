"""The guard's installation, and what keeps an endpoint on or off."""
