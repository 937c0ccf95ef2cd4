"""Who brings a cluster up and takes it down; one file each."""
