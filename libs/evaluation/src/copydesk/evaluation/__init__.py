"""How well a model corrects, beside another: data, scores, intervals, verdict.

`reading` makes a `Corpus` of files (`parallel`, `m2`, `jsonl`). `evaluate` has one `Subject` or two correct it
(`asking`), scores their answers (`figures`, over `gleu` and `edit_counts`) with intervals by `resampling`, and
judges the difference (`gates`). What runs a model or asks a fleet is elsewhere: nothing here knows engines or
HTTP. `page` and `table` show an `EvaluationResult`.
"""

from copydesk.evaluation.answers import Answer, Subject
from copydesk.evaluation.asking import OnProgress, Progress
from copydesk.evaluation.corpus import Corpus, DataError, Example
from copydesk.evaluation.errant_edits import ErrantMissingError
from copydesk.evaluation.evaluating import Options, evaluate, evaluate_all
from copydesk.evaluation.gates import DEFAULT_MARGINS, Gate, MarginError, Verdict
from copydesk.evaluation.reading import Format, Source, own_corpus, read_corpus
from copydesk.evaluation.result import Change, EvaluationResult, Metric

__all__ = [
    "DEFAULT_MARGINS",
    "Answer",
    "Change",
    "Corpus",
    "DataError",
    "ErrantMissingError",
    "EvaluationResult",
    "Example",
    "Format",
    "Gate",
    "MarginError",
    "Metric",
    "OnProgress",
    "Options",
    "Progress",
    "Source",
    "Subject",
    "Verdict",
    "evaluate",
    "evaluate_all",
    "own_corpus",
    "read_corpus",
]
