"""How others tell the daemon what to do: HTTP and JSON over a Unix socket."""
