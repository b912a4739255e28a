"""Two versions of a model behind one gateway, while one replaces the other: see docs/rollout.md.

`following` says which plan holds, `versions` counts what becomes of requests, `candidate` has the new version
answer and falls back on the old one, `copies` asks it what the old one has answered already, `examples` keeps
sentences on which they differ where that is wanted, `part` puts them together.
"""

from copydesk.gateway.rollout.examples import Examples
from copydesk.gateway.rollout.part import Rollout

__all__ = ["Examples", "Rollout"]
