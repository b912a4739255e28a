"""Load over HTTP whose figures can be trusted: planned arrivals, latency from the planned moment, a report."""

from copydesk.loadtest.generator import Send, run, run_closed
from copydesk.loadtest.http import CorrectSender, open_client
from copydesk.loadtest.plan import Plan, PlanError
from copydesk.loadtest.report import Failures, Quantiles, Report, summarise
from copydesk.loadtest.sample import RequestFailedError, Sample
from copydesk.loadtest.table import render

__all__ = [
    "CorrectSender",
    "Failures",
    "Plan",
    "PlanError",
    "Quantiles",
    "Report",
    "RequestFailedError",
    "Sample",
    "Send",
    "open_client",
    "render",
    "run",
    "run_closed",
    "summarise",
]
