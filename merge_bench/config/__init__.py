"""What a ``.cfg`` file says, what each setting means to UCX, and which value of an option is in effect."""
