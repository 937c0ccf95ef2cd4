"""Finding the config that is really faster, by measurement."""
