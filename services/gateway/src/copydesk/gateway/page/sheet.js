// The sheet of paper: a text area, and under it a layer with the same text, invisible but for its marks.
//
// A text area rather than an editable element, because with it typing, input methods, spelling on phones, undo, paste
// and screen readers are the browser's own, and no mark can get into the text. The layer also gives the sheet its
// height, so that neither scrolls by itself and they cannot get out of step.

import { parts } from "./marks.js";

const MOST_LINES = 1000; // in one change: Chromium takes seconds for so many, and four times as long for twice as many

export class Sheet {
  #text;
  #layer;
  #marks = [];
  #drawn = {};
  #composing = false;

  // `onEdit()` is called after each change of the text, `onCaret()` when the caret moves.
  constructor(text, layer, { onEdit, onCaret }) {
    this.#text = text;
    this.#layer = layer;
    text.addEventListener("compositionstart", () => { this.#composing = true; });
    text.addEventListener("compositionend", () => {
      this.#composing = false;
      onEdit();
    });
    text.addEventListener("input", onEdit);
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === text) onCaret();
    });
  }

  get text() {
    return this.#text.value;
  }

  // Whether an input method is in the middle of a word.
  get composing() {
    return this.#composing;
  }

  get selection() {
    return { start: this.#text.selectionStart, end: this.#text.selectionEnd };
  }

  get focused() {
    return document.activeElement === this.#text;
  }

  focus() {
    this.#text.focus({ preventScroll: true });
  }

  draw(suggestions) {
    const { text } = this;
    if (text === this.#drawn.text && suggestions === this.#drawn.suggestions) return;
    this.#drawn = { text, suggestions };
    this.#marks = [];
    const nodes = parts(text, suggestions).map((part) => this.#node(part));
    this.#layer.replaceChildren(...nodes, "\n"); // a last, empty line takes its place only before a line break
  }

  // Sets off the mark of one suggestion, or of none.
  pointOut(index) {
    this.#marks.forEach((mark, at) => mark?.classList.toggle("current", at === index));
  }

  select({ start, end }, index) {
    this.focus();
    this.#text.setSelectionRange(start, end);
    this.#marks[index]?.scrollIntoView({ block: "center" });
  }

  // Makes a change that the browser can undo, and says whether it can. Only `execCommand` makes such: it is deprecated,
  // and nothing replaces it.
  splice({ start, end, replacement }) {
    const before = document.activeElement;
    if (!this.focused) this.#text.inputMode = "none"; // or a phone would bring up its keyboard for a moment
    this.focus();
    this.#text.setSelectionRange(start, end);
    const done = replacement.split("\n").length <= MOST_LINES && this.#replaceSelection(replacement);
    if (!done) {
      this.#text.setRangeText(replacement, start, end, "end");
      this.#text.dispatchEvent(new InputEvent("input"));
    }
    if (before !== this.#text && before instanceof HTMLElement) before.focus({ preventScroll: true });
    this.#text.removeAttribute("inputmode");
    return done;
  }

  #replaceSelection(text) {
    return text === "" ? document.execCommand("delete") : document.execCommand("insertText", false, text);
  }

  // Copies the text, also where the page may not use the clipboard: that needs HTTPS or this very machine.
  async copy() {
    try {
      await navigator.clipboard.writeText(this.text);
    } catch {
      this.focus();
      this.#text.select();
      if (!document.execCommand("copy")) throw new Error("The browser does not allow copying here.");
    }
  }

  #node({ text, mark, index }) {
    if (!mark) return document.createTextNode(text);
    const element = document.createElement("span");
    element.className = `mark ${mark}`;
    element.textContent = text;
    this.#marks[index] = element;
    return element;
  }
}
