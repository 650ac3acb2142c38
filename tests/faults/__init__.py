"""The fault matrix: every call of every use case, each of them failing in each way."""
