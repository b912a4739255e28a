"""The rollout of a model: who is heard, what is decided, what is shown."""
