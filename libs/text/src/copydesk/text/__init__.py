"""From text to sentences and back, edits between texts, and measures of a correction."""

from copydesk.text.answers import AnswerCountError, SegmentMismatchError, correct_segments
from copydesk.text.diff import edits
from copydesk.text.edit import Edit, EditError, EditOutOfRangeError, OverlappingEditsError, apply
from copydesk.text.kinds import Kind, kind_of
from copydesk.text.likeness import similarity
from copydesk.text.sentences import Segment, segment, segments
from copydesk.text.symbols import keep_emoji
from copydesk.text.utf16 import Utf16
from copydesk.text.widening import widened

__all__ = [
    "AnswerCountError",
    "Edit",
    "EditError",
    "EditOutOfRangeError",
    "Kind",
    "OverlappingEditsError",
    "Segment",
    "SegmentMismatchError",
    "Utf16",
    "apply",
    "correct_segments",
    "edits",
    "keep_emoji",
    "kind_of",
    "segment",
    "segments",
    "similarity",
    "widened",
]
