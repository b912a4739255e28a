"""From the model's answers, sentence by sentence, to edits of the text they came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from copydesk.common.errors import CopydeskError
from copydesk.text.diff import edits
from copydesk.text.edit import Edit
from copydesk.text.sentences import Segment
from copydesk.text.whitespace import normalise, normalise_with_offsets


class AnswerCountError(CopydeskError):
    """There must be one answer for each segment: it carries both counts."""

    def __init__(self, segments: int, answers: int) -> None:
        self.segments = segments
        self.answers = answers
        super().__init__(f"{answers} answers for {segments} segments")


class SegmentMismatchError(CopydeskError):
    """A segment that does not belong to the text: it carries the `segment`."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        super().__init__(f"the text at [{segment.start}, {segment.end}) is not that of the segment")


def correct_segments(text: str, segments: Sequence[Segment], corrected: Sequence[str]) -> list[Edit]:
    """Return the edits of `text` that put each of `corrected` in the place of its segment.

    White space that an answer leaves alone stays as the author had it, newlines and double spaces included. No
    edit reaches outside its segment. An answer's own outer and repeated white space does not count.

    Raises:
        AnswerCountError: there are more or fewer answers than segments.
        SegmentMismatchError: a segment was not cut from `text`.
    """
    if len(segments) != len(corrected):
        raise AnswerCountError(len(segments), len(corrected))
    return [
        edit
        for segment, answer in zip(segments, corrected, strict=True)
        for edit in _segment_edits(text, segment, answer)
    ]


def _segment_edits(text: str, segment: Segment, answer: str) -> Iterator[Edit]:
    source = normalise_with_offsets(text[segment.start : segment.end])
    if source.text != segment.text:
        raise SegmentMismatchError(segment)
    offsets = source.offsets
    for edit in edits(source.text, normalise(answer)):
        start, end = _kept_newline(text, segment, offsets, edit)
        yield Edit(segment.start + offsets[start], segment.start + offsets[end], edit.replacement)


def _kept_newline(text: str, segment: Segment, offsets: Sequence[int], edit: Edit) -> tuple[int, int]:
    """Return the span of `edit`, moved so that a deleted word takes a plain space rather than a newline along."""
    start, end = edit.start, edit.end
    if edit.replacement or start == 0 or start == end:
        return start, end
    base = segment.start
    before = text[base + offsets[start - 1] : base + offsets[start]]
    after = text[base + offsets[end - 1] : base + offsets[end]]
    if before.isspace() and after.isspace() and "\n" in after and "\n" not in before:
        return start - 1, end - 1
    return start, end
