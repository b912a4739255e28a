// Cuts a text into the sentences that are sent, each on its own, so that a change sends one sentence and not a page.
//
// The server cuts what it gets once more, by better rules. A cut here that it would not make could therefore harm,
// while a cut that is missing here only makes a request larger: wherever there is doubt, there is no cut.

const ABBREVIATIONS = new Set((
  "mr mrs ms dr prof rev hon sr jr st mt gen col sgt capt lt gov sen rep pres inc ltd co corp dept univ assn bros "
  + "no nos vol vols pp ed eds fig figs eq sec ch art al etc vs approx est tel ext jan feb mar apr jun jul aug sep "
  + "sept oct nov dec mon tue wed thu fri sat sun ave blvd rd"
).split(" "));

const LONGEST = 2000;
const LONGEST_ABBREVIATION = 20;
const SENTENCE_END = /[.!?\u2026]\s+(?=["'\u201c\u2018([]{0,2}\p{Lu})|[\u3002\uff01\uff1f]+/gu;
const LINE_ENDS_SENTENCE = /[.!?:\u2026\u3002\uff01\uff1f]["'\u2019\u201d)\]*_]*$/u;
const LOWER_START = /^["'\u2018\u201c\u00ab([]{0,3}\p{Ll}/u;
const LAST_WORD = /[\p{L}\p{M}.]+$/u;
const LETTER = /\p{L}/u;

// Returns [{start, end, text}], ascending, with `text` the stretch [start, end) of UTF-16 units, without outer white
// space. What has no letter in it is left out: there is nothing to correct.
export function cut(text) {
  const found = [];
  for (const [blockStart, blockEnd] of blocks(text)) {
    for (const [start, end] of sentences(text, blockStart, blockEnd)) {
      for (const piece of pieces(text, start, end)) found.push(piece);
    }
  }
  return found;
}

// Yields runs of lines that may belong to one sentence.
function* blocks(text) {
  let start = 0;
  let offset = 0;
  let previous = "";
  for (const line of text.split("\n")) {
    const stripped = line.trim();
    if (previous && !mayGoOn(previous, stripped)) {
      yield [start, offset];
      previous = "";
    }
    if (!previous) start = offset;
    previous = stripped;
    offset += line.length + 1;
  }
  if (previous) yield [start, text.length];
}

// Whether the sentence in `line` may go on in the next one: editors and mail programs wrap at 60 to 100 characters.
function mayGoOn(line, following) {
  if (!following || LINE_ENDS_SENTENCE.test(line)) return false;
  return LOWER_START.test(following) || (line.length >= 60 && line.length <= 200);
}

function* sentences(text, start, end) {
  const block = text.slice(start, end);
  let begin = 0;
  for (const match of block.matchAll(SENTENCE_END)) {
    if (match[0][0] === "." && endsInAbbreviation(block, match.index)) continue;
    const next = match.index + match[0].length;
    yield [start + begin, start + next];
    begin = next;
  }
  yield [start + begin, end];
}

// A single letter counts as one too: an initial, or the last of "e.g.".
function endsInAbbreviation(block, dot) {
  const word = LAST_WORD.exec(block.slice(Math.max(0, dot - LONGEST_ABBREVIATION), dot))?.[0] ?? "";
  return word.length === 1 || word.includes(".") || ABBREVIATIONS.has(word.toLowerCase());
}

function* pieces(text, start, end) {
  let [from, to] = trimmed(text, start, end);
  while (from < to) {
    const until = to - from <= LONGEST ? to : from + longestCut(text.slice(from, from + LONGEST));
    const [first, last] = trimmed(text, from, until);
    const piece = text.slice(first, last);
    if (LETTER.test(piece)) yield { start: first, end: last, text: piece };
    from = trimmed(text, until, to)[0];
  }
}

function longestCut(head) {
  const space = Math.max(...[" ", "\n", "\t"].map((character) => head.lastIndexOf(character)));
  if (space > 0) return space + 1;
  return /[\ud800-\udbff]$/.test(head) ? head.length - 1 : head.length;
}

function trimmed(text, start, end) {
  const part = text.slice(start, end);
  const from = start + part.length - part.trimStart().length;
  return [from, Math.max(from, start + part.trimEnd().length)];
}
