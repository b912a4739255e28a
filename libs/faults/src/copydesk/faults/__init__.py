"""Faults of a network between two processes, put there on purpose: what can be wrong, and a proxy that does it."""

from copydesk.faults.proxy import FaultProxy
from copydesk.faults.weather import CLEAR, Condition, Way, Weather, WeatherError

__all__ = ["CLEAR", "Condition", "FaultProxy", "Way", "Weather", "WeatherError"]
