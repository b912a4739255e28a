// The list of suggestions: each with its words in their place, and two buttons.

import { inWords, same } from "./edits.js";

const SHOWN = 200; // of them; thousands of buttons would make each key stroke slow
const AROUND = 24; // UTF-16 units of text shown on either side

export class List {
  #list;
  #more;
  #on;
  #items = [];
  #suggestions = [];
  #drawn = "";

  // Of `on`, `accept(suggestion)`, `reject(suggestion)` and `show(suggestion)` are called for the buttons; `leave()`
  // when the last suggestion went while the focus was here.
  constructor(list, more, on) {
    this.#list = list;
    this.#more = more;
    this.#on = on;
    list.addEventListener("click", (event) => this.#act(event));
    list.addEventListener("keydown", (event) => this.#move(event));
  }

  draw(text, suggestions) {
    const shown = suggestions.slice(0, SHOWN);
    const rows = shown.map((suggestion) => ({ suggestion, ...surroundings(text, suggestion) }));
    const left = suggestions.length - shown.length;
    const state = JSON.stringify([rows, left]);
    if (state === this.#drawn) return; // or what is read out would start anew, and a pressed button would be lost
    this.#drawn = state;
    const focus = this.#focus();
    const before = this.#suggestions[focus?.index];
    this.#suggestions = shown;
    this.#items = rows.map((row, index) => item(row, index));
    this.#list.replaceChildren(...this.#items);
    this.#more.hidden = left === 0;
    this.#more.textContent = `And ${left} more after these.`;
    if (focus) this.#refocus(focus, shown.findIndex((suggestion) => same(suggestion, before)));
  }

  pointOut(index) {
    this.#items.forEach((element, at) => {
      if (at === index) element.setAttribute("aria-current", "true");
      else element.removeAttribute("aria-current");
    });
    const element = this.#items[index];
    if (!element || element.contains(document.activeElement)) return;
    // Not `scrollIntoView`: that would scroll the page too, away from the text.
    const { offsetTop: top, offsetHeight: height } = element;
    const view = this.#list;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + height > view.scrollTop + view.clientHeight) view.scrollTop = top + height - view.clientHeight;
  }

  #act(event) {
    const button = event.target.closest("button");
    if (button) this.#on[button.dataset.action](this.#suggestions[button.closest("li").dataset.index]);
  }

  // Up and down go to the same button of the neighbour, so that nobody needs to tab through all of them.
  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const focus = this.#focus();
    if (!step || !focus || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#button(focus.index + step, focus.action)?.focus();
  }

  #focus() {
    const button = document.activeElement;
    if (!this.#list.contains(button) || button.tagName !== "BUTTON") return null;
    return { index: Number(button.closest("li").dataset.index), action: button.dataset.action };
  }

  // Goes to the same button of the same suggestion, or, if that one is gone, of the one in its place.
  #refocus({ index, action }, now) {
    const button = this.#button(now >= 0 ? now : Math.min(index, this.#items.length - 1), action);
    if (button) button.focus({ preventScroll: true });
    else this.#on.leave();
  }

  #button(index, action) {
    return this.#items[index]?.querySelector(`[data-action=${action}]`);
  }
}

function surroundings(text, { start, end }) {
  const line = start === 0 ? 0 : text.lastIndexOf("\n", start - 1) + 1;
  const lineEnd = text.indexOf("\n", end) < 0 ? text.length : text.indexOf("\n", end);
  const [from, to] = [Math.max(line, start - AROUND), Math.min(lineEnd, end + AROUND)];
  const [before, after] = [text.slice(from, start), text.slice(end, to)];
  return {
    before: from > line ? before.replace(/^\S*\s?/, "\u2026") : before,
    after: to < lineEnd ? after.replace(/\s?\S*$/, "\u2026") : after,
  };
}

function item({ suggestion, before, after }, index) {
  const { original, replacement } = suggestion;
  const words = inWords(suggestion);
  const show = button("show", `Show in the text: ${words}`);
  show.append(before, original && marked("del", original), replacement && marked("ins", replacement), after);
  const element = document.createElement("li");
  element.dataset.index = index;
  element.append(show, labelled(button("accept", `Accept: ${words}`), "\u2713 Accept"),
    labelled(button("reject", `Reject: ${words}`), "\u2717 Reject"));
  return element;
}

function button(action, label) {
  const element = document.createElement("button");
  element.type = "button";
  element.dataset.action = action;
  element.setAttribute("aria-label", label);
  return element;
}

function labelled(element, text) {
  element.textContent = text;
  return element;
}

function marked(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text.replaceAll("\n", "\u21b5");
  return element;
}
