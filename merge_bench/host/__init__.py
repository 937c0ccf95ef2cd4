"""What this machine is and has: cores, memory, GPUs, interfaces, counters; the doctor's checks."""
