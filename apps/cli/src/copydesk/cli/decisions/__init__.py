"""Decisions of the autoscaler for people: where they are found, how they are told, where two policies differed."""
