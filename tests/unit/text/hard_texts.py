"""Texts that are hard to cut: any Unicode, and dense mixtures of what boundaries hang on."""

from __future__ import annotations

from hypothesis import strategies as st

FRAGMENTS = [
    *" \t\n.!?,;:'\"()[]<>-*#>1aAzé\u00a0\u2003\u2028\u2029\u0085\x1c\x0b\r",
    *"\u3002\uff01\uff1f\u3001\u2026\u201c\u201d\u2019\u0301\u0308\u200b\u200d\u200c\ufeff\ufe0f\u202e\u0600\u0903",
    *"😀👩🏽\U0001f1e6\U0001f1e7漢한\u1100\uac00שع\ud800\udfff\x00",
    "\r\n",
    "\n\n",
    "Dr. ",
    "e.g. ",
    "...",
    "[1]",
    "https://x.org/a ",
    "a@b.org",
    "She go home. ",
    "word ",
    "👨\u200d👩\u200d👧",
    "- ",
    "1. ",
]

dense_text = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)
any_text = st.one_of(dense_text, st.text(alphabet=st.characters(), max_size=80))
