// Edits of a text as plain data, {start, end, replacement} in UTF-16 units, and what can be done with them.

// The API counts Unicode code points, JavaScript counts UTF-16 units: an emoji is one there and two here.
export function inUnits(text, edits) {
  const ascending = [...edits].sort((a, b) => a.start - b.start || a.end - b.end);
  let units = 0;
  let points = 0;
  const advance = (point) => {
    while (points < point && units < text.length) {
      units += text.codePointAt(units) > 0xffff ? 2 : 1;
      points += 1;
    }
    return units;
  };
  return ascending.map(({ start, end, replacement }) => ({ start: advance(start), end: advance(end), replacement }));
}

// Applies ascending, disjoint edits.
export function apply(text, edits) {
  let result = "";
  let done = 0;
  for (const { start, end, replacement } of edits) {
    result += text.slice(done, start) + replacement;
    done = end;
  }
  return result + text.slice(done);
}

export function kindOf({ start, end, replacement }) {
  if (start === end) return "insert";
  return replacement === "" ? "delete" : "replace";
}

// What one change of a text was: the stretch [start, end) of `before` became `length` units of `after`.
export function difference(before, after) {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start += 1;
  let common = 0;
  while (common < shorter - start && before.at(-1 - common) === after.at(-1 - common)) common += 1;
  return { start, end: before.length - common, length: after.length - common - start };
}

// Takes edits of a text over to what a change made of it; those that the change touched are gone.
export function moved(edits, change) {
  const shift = change.length - (change.end - change.start);
  return edits.flatMap((edit) => {
    if (edit.end <= change.start) return [edit];
    return edit.start >= change.end ? [{ ...edit, start: edit.start + shift, end: edit.end + shift }] : [];
  });
}

export function same(one, other) {
  return one.start === other.start && one.end === other.end && one.replacement === other.replacement;
}

// Says an edit in words, for those who hear the page.
export function inWords({ original, replacement, kind }) {
  if (kind === "insert") return `insert ${quoted(replacement)}`;
  return kind === "delete" ? `delete ${quoted(original)}` : `replace ${quoted(original)} by ${quoted(replacement)}`;
}

function quoted(text) {
  if (text.trim()) return `\u201c${text.trim()}\u201d`;
  return text.includes("\n") ? "a line break" : text ? "a space" : "nothing";
}
