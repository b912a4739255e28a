"""What a gateway costs: requests a CPU second of its process, beside other proxies, over the same mock pods."""
