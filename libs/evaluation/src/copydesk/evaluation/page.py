"""An evaluation as one HTML file that needs nothing else: verdict, figures, and every sentence that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from copydesk.evaluation import picture
from copydesk.evaluation.document import document, table
from copydesk.evaluation.result import Change, EditFigures, EvaluationResult
from copydesk.evaluation.wording import VERDICTS, data_line, figure_rows, gate_line, kept, rate, told
from copydesk.text import edits

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;margin:1rem 0}"
    "th,td{padding:.25rem 1rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #8884}"
    "td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    "caption{text-align:left;font-weight:600;padding:.25rem 0}"
    "del{background:#c43b3b33;text-decoration:line-through}"
    "ins{background:#2ea04344;text-decoration:underline}.verdict{font-size:1.3rem;border-left:.4rem solid #8888;"
    "padding:.2rem .8rem}.pass{border-color:#2ea043}.fail{border-color:#c43b3b}.inconclusive{border-color:#d97706}"
    "th button{font:inherit;font-weight:600;background:none;border:0;padding:0;cursor:pointer;color:inherit}"
    "th button::after{content:' \u2195'}th[aria-sort=ascending] button::after{content:' \u2191'}"
    "th[aria-sort=descending] button::after{content:' \u2193'}.key b{font-weight:600}dt{font-weight:600}"
    "dd{margin:0 0 .3rem 0}svg{max-width:100%;height:auto;margin:1rem 0}.same{opacity:.75}"
)
_SCRIPT = """
const table = document.getElementById('changes');
if (table) {
  const body = table.tBodies[0], rows = [...body.rows];
  for (const button of table.querySelectorAll('th button')) {
    button.addEventListener('click', () => {
      const head = button.closest('th'), key = button.dataset.key;
      const down = head.getAttribute('aria-sort') === 'ascending';
      for (const other of table.querySelectorAll('th')) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const value = row => key === 'effect' || key === 'number' ? Number(row.dataset[key]) : row.dataset[key];
      rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
      body.append(...rows);
    });
  }
  const kind = document.getElementById('kind'), shown = document.getElementById('shown');
  kind.addEventListener('change', () => {
    let count = 0;
    for (const row of rows) {
      row.hidden = kind.value !== '' && !row.dataset.types.split(' ').includes(kind.value);
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = count + ' shown';
  });
}
"""


def html(result: EvaluationResult, *, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page; `facts` are shown below the verdict, such as when and with which command it was made."""
    parts = [
        f"<h1>{escape(title)}</h1>",
        _verdict(result),
        _pairs([*_who(result), *facts]),
        picture.losses(result.gates),
        picture.figures(result),
        _key(result),
        _figures(result),
        _types(result),
        _changes(result),
    ]
    return document(title, parts, style=_STYLE + picture.STYLE, script=_SCRIPT)


def _verdict(result: EvaluationResult) -> str:
    if result.verdict is None:
        return '<p class="verdict">No verdict: there is no reference model to compare with.</p>'
    gates = "".join(f"<li><b>{gate.verdict}</b>: {escape(gate_line(gate))}</li>" for gate in result.gates)
    notes = "".join(f"<li>note: {escape(note)}</li>" for note in result.notes)
    said = f"{result.verdict}: {VERDICTS[result.verdict]}"
    return f'<p class="verdict {result.verdict}"><b>{escape(said)}</b></p>\n<ul>{gates}{notes}</ul>'


def _who(result: EvaluationResult) -> Iterator[tuple[str, str]]:
    for name, model in (("candidate", result.candidate), ("reference model", result.reference)):
        if model is None:
            continue
        yield name, told(model)
        if unused := kept(model):
            yield f"{name}, answers not used", unused
    yield "data", data_line(result)
    yield "intervals", f"95 %, from {result.resamples} resamples of the sentences, seed {result.seed}"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def _key(result: EvaluationResult) -> str:
    if result.reference is None:
        return ""
    return '<p class="key">In the picture: <b>dot</b>, the candidate; <b>square</b>, the reference model.</p>'


def _figures(result: EvaluationResult) -> str:
    compared = result.reference is not None
    head = ["figure", "candidate", *(["reference model", "difference"] if compared else []), "sentences"]
    rows = [[*cells, str(metric.sentences)] for metric, cells in figure_rows(result)]
    rates = [model.rate for model in (result.candidate, result.reference) if model]
    rows.append(["sentences a second, side by side", *map(rate, rates)])
    rows.append(["GLEU of the text as it is", f"{result.gleu_unchanged:.2f}"])
    return table("Figures, with 95 % intervals", head, rows)


def _types(result: EvaluationResult) -> str:
    head = ["type", "right", "wrong", "missed", "F0.5 %"]
    if result.reference:
        head += [f"reference model: {name}" for name in head[1:]]
    rows = [
        [row.type, *_cells(row.candidate), *(_cells(row.reference) if row.reference else [])]
        for row in result.types
    ]
    return table(f"Edits by type, found by {result.edits_by}", head, rows) if rows else ""


def _cells(figures: EditFigures) -> list[str]:
    return [str(figures.right), str(figures.wrong), str(figures.missed), f"{100 * figures.f_half:.1f}"]


def _changes(result: EvaluationResult) -> str:
    what = "Sentences on which they differ" if result.reference else "Sentences that were changed"
    if not result.changes:
        return f"<h2>{what}</h2><p>There is none.</p>"
    before = "reference model" if result.reference else "text"
    kinds = sorted({kind for change in result.changes for kind in change.types})
    options = "".join(f'<option value="{escape(kind)}">{escape(kind)}</option>' for kind in kinds)
    columns = (("number", "number"), ("effect", "effect on GLEU"), ("types", "types"), ("source", "sentence"))
    head = "".join(
        f'<th scope="col"><button type="button" data-key="{key}">{name}</button></th>' for key, name in columns
    )
    rows = "\n".join(_change(number, change, before) for number, change in enumerate(result.changes, 1))
    return (
        f'<h2>{what}</h2>\n<p><label>Only those with <select id="kind"><option value="">any type</option>'
        f'{options}</select></label> <span id="shown" role="status">{len(result.changes)} shown</span></p>\n'
        f'<table id="changes"><caption>From the {before} to the candidate: <del>gone</del>, <ins>come</ins>. '
        "The effect is in points of the whole corpus; below 0 the candidate is worse.</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


def _change(number: int, change: Change, before: str) -> str:
    effect = "" if change.effect is None else f"{change.effect:+.3f}"
    references = "".join(f"<dd>{escape(reference)}</dd>" for reference in change.references)
    texts = f"<dt>source</dt><dd>{escape(change.source)}</dd>" if change.source != change.before else ""
    return (
        f'<tr data-number="{number}" data-effect="{change.effect or 0.0:.6f}" '
        f'data-types="{escape(" ".join(change.types))}" data-source="{escape(change.source.casefold())}">'
        f"<td>{number}</td><td>{effect}</td><td>{'<br>'.join(map(escape, change.types))}</td><td><dl>{texts}"
        f"<dt>{before} to candidate</dt><dd>{marked(change.before, change.after)}</dd>"
        f'<dt class="same">right would be</dt>{references}</dl></td></tr>'
    )


def marked(before: str, after: str) -> str:
    """Return `before` as HTML with what changes on the way to `after` marked; all text is escaped."""
    parts, done = [], 0
    for edit in edits(before, after):
        parts.append(escape(before[done : edit.start]))
        parts += [f"<del>{escape(before[edit.start : edit.end])}</del>"] if edit.start < edit.end else []
        parts += [f"<ins>{escape(edit.replacement)}</ins>"] if edit.replacement else []
        done = edit.end
    parts.append(escape(before[done:]))
    return "".join(parts)
