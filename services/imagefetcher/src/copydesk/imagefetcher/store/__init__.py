"""What a node keeps on its disk: sectors by the digest of their content, and a ledger of what belongs to whom."""
