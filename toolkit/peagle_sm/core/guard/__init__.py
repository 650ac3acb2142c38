"""What the guard's stack, its Lambdas and the command line agree on."""
