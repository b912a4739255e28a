"""Routing decisions: pure functions and small state machines, with time and randomness passed in."""

from copydesk.routing.budget import RetryBudget
from copydesk.routing.choice import Candidate, choose
from copydesk.routing.ewma import PeakEwma
from copydesk.routing.freshness import Held, Verdict, hear, judge
from copydesk.routing.ledger import Ending, HeardLoad, Ledger, Ticket
from copydesk.routing.score import Standing, better, occupancy

__all__ = [
    "Candidate",
    "Ending",
    "HeardLoad",
    "Held",
    "Ledger",
    "PeakEwma",
    "RetryBudget",
    "Standing",
    "Ticket",
    "Verdict",
    "better",
    "choose",
    "hear",
    "judge",
    "occupancy",
]
