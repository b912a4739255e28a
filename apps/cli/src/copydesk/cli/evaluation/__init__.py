"""What `copydesk model evaluate` and the commands that build on it have models for: directories, and fleets."""
