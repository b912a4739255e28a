"""Property tests without a deadline: how long one example takes says more about the machine than the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("copydesk", deadline=None)
settings.load_profile("copydesk")
