// The text being written, what the fleet said of its sentences, and the suggestions that follow from both.
//
// Everything shown is derived from three things: the text, the answers by sentence, and what was rejected. So undoing
// a change brings its suggestions back at once, and typing in one sentence leaves those of the others alone.

import { apply, difference, inUnits, kindOf, moved, same } from "./edits.js";
import { cut } from "./sentences.js";

const SPARE_ANSWERS = 2000;
const REMEMBERED_TEXTS = 100;
const WORD = /[\p{L}\p{N}]/u;

export class Draft {
  text = "";
  sentences = [];
  // Ascending: {start, end, replacement, original, kind}, in UTF-16 units of the text.
  suggestions = [];
  rejected = [];
  #answers = new Map();
  #remembered = new Map();

  // Takes over the text as it is now. Suggestions of a sentence without an answer yet stay where the change spares them.
  edit(text) {
    const change = difference(this.text, text);
    const carried = moved([...this.suggestions, ...this.rejected], change)
      .filter((edit) => !outgrown(edit, change, text));
    const rejected = this.#remembered.get(text) ?? moved(this.rejected, change);
    this.text = text;
    this.sentences = cut(text);
    this.#forgetOldAnswers();
    this.#derive(carried, rejected);
  }

  // The sentences that nobody answered for yet, each once, in the order of the text.
  waiting() {
    const texts = this.sentences.map((sentence) => sentence.text).filter((text) => !this.#answers.has(text));
    return [...new Set(texts)];
  }

  // Takes the answer for a sentence: its edits as the API gives them, and why parts of it were left alone, as
  // {reason, again}, where `again` says that asking again may help.
  answer(sentence, edits, left = []) {
    this.#answers.set(sentence, { edits: inUnits(sentence, edits), left });
    this.#rederive();
  }

  // Why sentences of this text were left as they are, one reason a sentence.
  left() {
    return this.sentences.flatMap((sentence) => this.#answers.get(sentence.text)?.left.slice(0, 1) ?? []);
  }

  // Forgets the answers that another try may change.
  retryLeft() {
    for (const [sentence, { left }] of this.#answers) {
      if (left.some(({ again }) => again)) this.#answers.delete(sentence);
    }
    this.#rederive();
  }

  reject(chosen) {
    this.rejected = [...this.rejected, ...chosen];
    this.#rederive();
    this.#remember(this.text, this.rejected);
  }

  restore() {
    const carried = [...this.suggestions, ...this.rejected];
    this.#derive(carried, []);
    this.#remember(this.text, []);
  }

  // Returns the one change of the text, {start, end, replacement}, that accepts `chosen`, and prepares for it: what the
  // fleet would say of the sentences afterwards is known, and what was rejected between them stays rejected.
  accept(chosen) {
    const ascending = [...chosen].sort((a, b) => a.start - b.start);
    const [start, end] = [ascending[0].start, ascending.at(-1).end];
    for (const sentence of this.sentences) this.#expect(sentence, ascending);
    this.#remember(this.text, this.rejected);
    this.#remember(apply(this.text, ascending), after(this.rejected, ascending));
    const replacement = apply(this.text.slice(start, end), ascending.map((edit) => shifted(edit, -start)));
    return { start, end, replacement };
  }

  #expect({ start, end, text }, chosen) {
    const answer = this.#answers.get(text);
    const here = chosen.filter((edit) => start <= edit.start && edit.end <= end).map((edit) => shifted(edit, -start));
    if (!answer || !here.length) return;
    const open = answer.edits.filter((edit) => !here.some((accepted) => same(accepted, edit)));
    this.#answers.set(apply(text, here), { edits: after(open, here), left: answer.left });
  }

  #rederive() {
    this.#derive([...this.suggestions, ...this.rejected], this.rejected);
  }

  #derive(carried, rejected) {
    const all = this.sentences.flatMap(({ start, end, text }) => {
      const answer = this.#answers.get(text);
      if (answer) return answer.edits.map((edit) => this.#suggestion(shifted(edit, start)));
      return carried.filter((edit) => start <= edit.start && edit.end <= end);
    }).sort((a, b) => a.start - b.start || a.end - b.end);
    const isRejected = (edit) => rejected.some((other) => same(edit, other));
    this.suggestions = all.filter((edit) => !isRejected(edit));
    this.rejected = all.filter(isRejected);
  }

  #suggestion({ start, end, replacement }) {
    const edit = { start, end, replacement };
    return { ...edit, original: this.text.slice(start, end), kind: kindOf(edit) };
  }

  #remember(text, rejected) {
    this.#remembered.delete(text);
    this.#remembered.set(text, rejected);
    if (this.#remembered.size > REMEMBERED_TEXTS) this.#remembered.delete(this.#remembered.keys().next().value);
  }

  #forgetOldAnswers() {
    if (this.#answers.size <= SPARE_ANSWERS + 2 * this.sentences.length) return;
    const present = new Set(this.sentences.map((sentence) => sentence.text));
    for (const sentence of this.#answers.keys()) if (!present.has(sentence)) this.#answers.delete(sentence);
  }
}

// Whether what was typed at its edge made another word of the one that the edit is about.
function outgrown(edit, change, text) {
  if (change.length === 0 || edit.start > change.start + change.length || edit.end < change.start) return false;
  const joined = (place) => WORD.test(text[place - 1] ?? "") && WORD.test(text[place] ?? "");
  return joined(edit.end === change.start ? edit.end : edit.start);
}

function shifted(edit, by) {
  return { ...edit, start: edit.start + by, end: edit.end + by };
}

// What becomes of edits when others, disjoint from them and ascending, are applied.
function after(edits, applied) {
  return [...applied].reverse().reduce(
    (open, { start, end, replacement }) => moved(open, { start, end, length: replacement.length }), edits);
}
