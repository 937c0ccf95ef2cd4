"""What runs in the ranks of network measurements: workers of a cluster, processes that mpirun starts, ucc_perftest."""
