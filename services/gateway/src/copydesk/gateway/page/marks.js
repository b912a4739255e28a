// Where in a text its suggestions are marked: pure, the drawing is elsewhere.
//
// A mark must not move a single character, so there is no place for what would be put in: an insertion is marked at
// the character before it (`insert-after`) or, at the start of a line or behind another mark, the one behind it.

const NEAR = 64; // UTF-16 units in which the neighbouring character, an emoji of many parts perhaps, has to end
const graphemes = globalThis.Intl?.Segmenter ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;

// Returns the text in parts, {text} or {text, mark, index}, which together are the text. Suggestions ascend; `index`
// says which of them a part belongs to.
export function parts(text, suggestions) {
  const found = [];
  let done = 0;
  suggestions.forEach((suggestion, index) => {
    const next = suggestions[index + 1]?.start ?? text.length;
    const { start, end, mark } = placed(text, suggestion, done, next);
    if (start >= end || start < done) return;
    if (start > done) found.push({ text: text.slice(done, start) });
    found.push({ text: text.slice(start, end), mark, index });
    done = end;
  });
  if (done < text.length) found.push({ text: text.slice(done) });
  return found;
}

function placed(text, { start, end, kind }, done, next) {
  if (kind !== "insert") return { start, end, mark: kind };
  const before = lastCharacter(text.slice(Math.max(done, start - NEAR), start));
  if (before && before !== "\n") return { start: start - before.length, end: start, mark: "insert-after" };
  const after = firstCharacter(text.slice(start, Math.min(next, start + NEAR)));
  return { start, end: after === "\n" ? start : start + after.length, mark: "insert-before" };
}

function lastCharacter(text) {
  return characters(text).at(-1) ?? "";
}

function firstCharacter(text) {
  return characters(text)[0] ?? "";
}

function characters(text) {
  return graphemes ? Array.from(graphemes.segment(text), (part) => part.segment) : Array.from(text);
}
