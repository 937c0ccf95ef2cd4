"""What one worker does with its rows: workload, partition, exchange, join, verification."""
