"""What `copydesk model quantize` shows."""
