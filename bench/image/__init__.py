"""Lazily loaded images beside a normal pull; see `python -m bench.image --help`."""
