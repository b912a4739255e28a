"""An HTML document in one file that needs nothing else and fetches nothing: its frame, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def document(title: str, parts: Sequence[str], *, style: str, script: str = "") -> str:
    """Return the document; `parts` are HTML, of which empty ones are left out. Only this script may run in it."""
    policy = "default-src 'none'; style-src 'unsafe-inline'" + ("; script-src 'unsafe-inline'" if script else "")
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{style}</style></head>\n<body><main>\n{body}\n</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts; each row begins with its name, and may be shorter than the head."""
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head) if any(head) else ""
    lines = []
    for first, *cells in rows:
        plain = "".join(f"<td>{escape(cell)}</td>" for cell in [*cells, *[""] * (len(head) - 1 - len(cells))])
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{plain}</tr>')
    top = f"<thead><tr>{titles}</tr></thead>" if titles else ""
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{''.join(lines)}</tbody></table>"
