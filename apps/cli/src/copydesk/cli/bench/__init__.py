"""`copydesk bench engine`: this engine and others, on the same prompts, taking turns on the same cores."""
