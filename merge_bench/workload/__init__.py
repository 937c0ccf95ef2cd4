"""What is merged: where the rows of the left and the right frame come from."""
