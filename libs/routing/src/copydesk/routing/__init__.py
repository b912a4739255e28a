"""Routing decisions: pure functions and small state machines, with time and randomness passed in."""

from copydesk.routing.admission import AdmissionQueue, Pace, PaceMeter, Refusal, allowance, retry_after
from copydesk.routing.aperture import Member, aperture, resize
from copydesk.routing.budget import RetryBudget
from copydesk.routing.choice import Candidate, choose, choose_near
from copydesk.routing.freshness import Held, Verdict, hear, judge
from copydesk.routing.ledger import Ending, HeardLoad, Ledger, LedgerRules, Ticket
from copydesk.routing.outlier import Conduct, Ejection, OutlierRules, Outliers, Reason, Verdicts, usable
from copydesk.routing.proportion import Interval, difference, wilson
from copydesk.routing.quantile import Quantiles
from copydesk.routing.rollout import Agreement, Decision, Evidence, Policy, Service, Stage, State, decide
from copydesk.routing.score import Standing, better
from copydesk.routing.split import Draw, Split
from copydesk.routing.warmth import warmth

__all__ = [
    "AdmissionQueue",
    "Agreement",
    "Candidate",
    "Conduct",
    "Decision",
    "Draw",
    "Ejection",
    "Ending",
    "Evidence",
    "HeardLoad",
    "Held",
    "Interval",
    "Ledger",
    "LedgerRules",
    "Member",
    "OutlierRules",
    "Outliers",
    "Pace",
    "PaceMeter",
    "Policy",
    "Quantiles",
    "Reason",
    "Refusal",
    "RetryBudget",
    "Service",
    "Split",
    "Stage",
    "Standing",
    "State",
    "Ticket",
    "Verdict",
    "Verdicts",
    "allowance",
    "aperture",
    "better",
    "choose",
    "choose_near",
    "decide",
    "difference",
    "hear",
    "judge",
    "resize",
    "retry_after",
    "usable",
    "warmth",
    "wilson",
]
