"""One count for all gateways, kept in Redis."""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.resources import files

from redis.exceptions import NoScriptError

from copydesk.gateway.rates.gcra import Rate
from copydesk.gateway.rates.meters import Meter, OnRuling, refusal
from copydesk.gateway.redis_link import RedisLink, Reply

KEY_PREFIX = "copydesk:rate:"

GCRA = files("copydesk.gateway.rates").joinpath("gcra.lua").read_text(encoding="utf-8")

CLOCK = "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n"
"""Redis' clock rather than the gateways', which need not agree."""

SCRIPT = CLOCK + GCRA
SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


class SharedMeter:
    """Asks Redis; where it cannot say, `fallback` decides.

    All that is asked in one turn of the event loop goes out together, see `RedisLink`. A request whose answer was
    lost with the connection may have been counted, and then is counted twice.
    """

    def __init__(self, link: RedisLink, fallback: Meter) -> None:
        self._link = link
        self._fallback = fallback

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Ask, and decide when the answer is there; at once while Redis is known to be lost."""
        if not self._link.up:
            self._fallback.spend(client, rate, on_ruling)
            return
        on_reply = partial(self._on_reply, client, rate, on_ruling)
        self._link.submit(_command("EVALSHA", SHA, client, rate), on_reply)

    def _on_reply(self, client: str, rate: Rate, on_ruling: OnRuling, reply: Reply) -> None:
        if isinstance(reply, NoScriptError):  # Redis was restarted, or its scripts were flushed
            on_second = partial(self._on_wait, client, rate, on_ruling)
            self._link.submit(_command("EVAL", SCRIPT, client, rate), on_second)
        else:
            self._on_wait(client, rate, on_ruling, reply)

    def _on_wait(self, client: str, rate: Rate, on_ruling: OnRuling, reply: Reply) -> None:
        if isinstance(reply, int):
            on_ruling(refusal(rate, reply) if reply else None)
        else:
            self._fallback.spend(client, rate, on_ruling)


def _command(verb: str, script: str, client: str, rate: Rate) -> tuple[str | int, ...]:
    return (verb, script, 1, KEY_PREFIX + client, rate.interval, rate.burst)
