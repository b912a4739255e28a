"""Why a message changed nothing."""

from __future__ import annotations

import enum


class Dropped(enum.StrEnum):
    """The reasons; the names are those of the metric's labels.

    `OLD`: late, repeated, or of a run that has ended. `TOO_MANY`: of one gateway or pod more than are remembered.
    `TWICE`: of a gateway under whose name another one, which was started later, speaks as well.
    """

    INVALID = "invalid"
    MODEL = "unknown_model"
    OLD = "old"
    TOO_MANY = "too_many"
    TWICE = "name_twice"
