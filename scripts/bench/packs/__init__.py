"""Clean and faulty runs of the workload packs on the local engine (`scripts/bench-packs`)."""
