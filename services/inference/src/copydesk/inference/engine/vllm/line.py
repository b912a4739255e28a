"""Who waits, and in which order: interactive before batch, first come first served within."""

from __future__ import annotations

from copydesk.common.rpc.frames import Priority


class Line:
    """Requests by their ids; all of it takes the same time however many wait."""

    def __init__(self) -> None:
        # Dictionaries keep the order in which keys came, and let go of any of them.
        self._lanes: dict[Priority, dict[int, None]] = {priority: {} for priority in sorted(Priority)}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, request_id: int, priority: Priority) -> None:
        """Put a request behind its equals."""
        self._lanes[priority][request_id] = None

    def discard(self, request_id: int) -> bool:
        """Take a request out, wherever it stands; false if it does not wait."""
        return any(lane.pop(request_id, self) is None for lane in self._lanes.values())

    def take(self) -> int | None:
        """Take out whose turn it is."""
        for lane in self._lanes.values():
            if lane:
                request_id = next(iter(lane))
                del lane[request_id]
                return request_id
        return None

    def ahead_of(self, priority: Priority) -> int:
        """Return how many would go before a newcomer."""
        return sum(len(lane) for other, lane in self._lanes.items() if other <= priority)

    def displaced_by(self, priority: Priority) -> int | None:
        """Return who gives way to a newcomer when no more may wait: the last, if it is less urgent."""
        for other, lane in reversed(self._lanes.items()):
            if lane:
                return next(reversed(lane)) if other > priority else None
        return None
