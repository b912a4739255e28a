"""From text to sentences and back, edits between texts, and measures of a correction."""

from copydesk.text.answers import AnswerCountError, SegmentMismatchError, correct_segments
from copydesk.text.diff import edits
from copydesk.text.edit import Edit, EditError, EditOutOfRangeError, OverlappingEditsError, apply
from copydesk.text.likeness import similarity
from copydesk.text.sentences import Segment, segment, segments
from copydesk.text.symbols import keep_emoji

__all__ = [
    "AnswerCountError",
    "Edit",
    "EditError",
    "EditOutOfRangeError",
    "OverlappingEditsError",
    "Segment",
    "SegmentMismatchError",
    "apply",
    "correct_segments",
    "edits",
    "keep_emoji",
    "segment",
    "segments",
    "similarity",
]
