"""What network measurements run inside the workers of a cluster."""
