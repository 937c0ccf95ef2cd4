"""What on a host would spoil a run: one small pure function a check, over a description of the machine."""
