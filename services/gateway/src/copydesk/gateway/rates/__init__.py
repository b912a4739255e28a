"""How often a client may ask: the rule, and the two places where its state can be kept."""

from copydesk.gateway.rates.gcra import Rate, Ruling, rule
from copydesk.gateway.rates.meters import ClosedMeter, LocalMeter, Meter, OnRuling
from copydesk.gateway.rates.shared import SharedMeter

__all__ = ["ClosedMeter", "LocalMeter", "Meter", "OnRuling", "Rate", "Ruling", "SharedMeter", "rule"]
