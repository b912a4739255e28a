"""A process that keeps descriptors while the daemon is away: killed, crashed or being upgraded.

As long as it has the descriptor of /dev/fuse, readers of mounted images wait for the next daemon instead of
failing. So it has to outlive every daemon, and does as little as possible: standard library only, no threads, no
files, no state but the descriptors. It belongs into a unit and a control group of its own, or whoever ends the
daemon ends it too.
"""
