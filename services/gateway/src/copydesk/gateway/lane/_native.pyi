"""What the compiled module holds; its sources are in `csrc`."""
