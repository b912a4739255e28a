"""Answers that are there already: remembered ones, and those that somebody else is waiting for."""

from copydesk.gateway.cache.flight import Waiter
from copydesk.gateway.cache.memory import MemoryCache
from copydesk.gateway.cache.sentences import Remembered, SharedSentences
from copydesk.gateway.cache.shared import RedisCache

__all__ = ["MemoryCache", "RedisCache", "Remembered", "SharedSentences", "Waiter"]
