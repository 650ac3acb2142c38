"""The guard: once in an account and region, it watches the endpoints and turns off what nobody uses."""
