"""Network measurements over MPI: mpirun and the ranks it starts, what runs in them, and ucc_perftest."""
