"""Routing decisions: pure functions and small state machines, with time and randomness passed in."""

from copydesk.routing.admission import AdmissionQueue, Pace, PaceMeter, Refusal, allowance, retry_after
from copydesk.routing.aperture import Member, aperture, resize
from copydesk.routing.budget import RetryBudget
from copydesk.routing.choice import Candidate, choose, choose_near
from copydesk.routing.freshness import Held, Verdict, hear, judge
from copydesk.routing.ledger import Ending, HeardLoad, Ledger, LedgerRules, Ticket
from copydesk.routing.outlier import Conduct, Ejection, OutlierRules, Outliers, Reason, Verdicts, usable
from copydesk.routing.quantile import Quantiles
from copydesk.routing.score import Standing, better
from copydesk.routing.warmth import warmth

__all__ = [
    "AdmissionQueue",
    "Candidate",
    "Conduct",
    "Ejection",
    "Ending",
    "HeardLoad",
    "Held",
    "Ledger",
    "LedgerRules",
    "Member",
    "OutlierRules",
    "Outliers",
    "Pace",
    "PaceMeter",
    "Quantiles",
    "Reason",
    "Refusal",
    "RetryBudget",
    "Standing",
    "Ticket",
    "Verdict",
    "Verdicts",
    "allowance",
    "aperture",
    "better",
    "choose",
    "choose_near",
    "hear",
    "judge",
    "resize",
    "retry_after",
    "usable",
    "warmth",
]
