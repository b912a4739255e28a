"""Benchmarks: each a module with `--json`; what they measured stands in docs/benchmarks.md."""
