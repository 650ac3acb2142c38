"""AWS with faults: the services that the guard calls, on a simulated clock."""
