// The writing page: brings together the sheet, the list, the draft behind them and the way to the fleet.

import { correct } from "./api.js";
import { Courier } from "./courier.js";
import { Draft } from "./draft.js";
import { inWords, same } from "./edits.js";
import { askForKey } from "./key.js";
import { Latency } from "./latency.js";
import { List } from "./list.js";
import { Sheet } from "./sheet.js";

const PAUSE_MS = 300;
const FRAME_MS = 16;
const PATIENCE_MS = 700; // before "Correcting" is said: most answers are there sooner
const LEFT = {
  too_long: "It is too long for the model.",
  truncated: "The model did not come to an end.",
  dissimilar: "What the model wrote was no correction.",
};
const at = (id) => document.getElementById(id);

const draft = new Draft();
const latency = new Latency();
const sheet = new Sheet(at("text"), at("layer"), { onEdit: edited, onCaret: pointOut });
const list = new List(at("list"), at("more"), {
  accept: (suggestion) => accept(stillOpen(suggestion)),
  reject: (suggestion) => reject(stillOpen(suggestion)),
  show: (suggestion) => go(draft.suggestions.indexOf(stillOpen(suggestion)[0])),
  leave: () => sheet.focus(),
});
const courier = new Courier(correct, {
  answer: (sentence, answer) => {
    latency.add(answer.waited_ms);
    const left = answer.skipped.flatMap((part) => LEFT[part.reason] ?? []);
    settle(sentence, answer.edits, left.map((reason) => ({ reason, again: false })));
  },
  refusal: (sentence, { message }) => settle(sentence, [], [{ reason: message, again: true }]),
  trouble: complain,
  recovery: () => { at("trouble").hidden = true; },
});
const demandKey = askForKey(at("access"), () => courier.resume());

let pause = 0;
let due = 0;
let cost = 0;
let patience = 0;
let waitingSince = null;

function edited() {
  draft.edit(sheet.text);
  sheet.draw(draft.suggestions); // at once: the marks must stay under their words
  tell("");
  show();
  clearTimeout(pause);
  if (!sheet.composing) pause = setTimeout(send, PAUSE_MS);
}

function send() {
  clearTimeout(pause);
  courier.want(draft.waiting());
  show();
}

function settle(sentence, edits, left) {
  draft.answer(sentence, edits, left);
  show();
}

// Answers may come in bunches: however long the text is, drawing takes at most a third of the time.
function show() {
  if (!due) due = setTimeout(draw, Math.max(FRAME_MS, 2 * cost));
}

function draw() {
  clearTimeout(due);
  due = 0;
  const begun = performance.now();
  sheet.draw(draft.suggestions);
  list.draw(sheet.text, draft.suggestions);
  pointOut();
  summarise();
  cost = performance.now() - begun;
}

function summarise() {
  const [open, rejected, left] = [draft.suggestions.length, draft.rejected.length, draft.left()];
  at("count").textContent = open ? ` (${open})` : "";
  at("accept-all").disabled = open === 0;
  at("copy").disabled = sheet.text === "";
  at("restore").hidden = rejected === 0;
  at("restore").textContent = `Restore ${rejected} rejected`;
  at("left").hidden = left.length === 0;
  at("retry").hidden = !left.some(({ again }) => again);
  const reasons = [...new Set(left.map(({ reason }) => reason))].join(" ");
  at("reasons").textContent = `${plural(left.length, "sentence")} left as written. ${reasons}`;
  at("latency").textContent = latency.inWords();
  const status = progress(open, draft.waiting().length, draft.sentences.length);
  if (status !== null && at("status").textContent !== status) at("status").textContent = status;
}

// Says how far the correction is; null leaves what was said, because an answer is most likely about to come.
function progress(open, waiting, sentences) {
  clearTimeout(patience);
  if (waiting === 0) {
    waitingSince = null;
    if (sentences === 0) return "";
    return open ? `${plural(open, "suggestion")}.` : "Nothing to correct.";
  }
  if (!at("trouble").hidden) return "";
  waitingSince ??= performance.now();
  const left = PATIENCE_MS - (performance.now() - waitingSince);
  if (left <= 0) return `Correcting: ${sentences - waiting} of ${plural(sentences, "sentence")} done.`;
  patience = setTimeout(show, left);
  return null;
}

function tell(message) {
  at("told").textContent = message;
}

function complain({ message, status }, seconds) {
  if (seconds === null) demandKey();
  const kept = status === 0 ? " Your text is still here." : "";
  const next = seconds === null ? "" : ` It is tried again in ${plural(Math.ceil(seconds), "second")}.`;
  at("message").textContent = `${message}${kept}${next}`;
  at("again").hidden = seconds === null;
  at("trouble").hidden = false;
  show();
}

// The suggestion that is selected, or at the caret: it is what the keys accept and reject.
function current() {
  const { start, end } = sheet.selection;
  const selected = draft.suggestions.findIndex((suggestion) => suggestion.start === start && suggestion.end === end);
  if (selected >= 0) return selected;
  return draft.suggestions.findIndex((suggestion) => suggestion.start <= start && start <= suggestion.end);
}

function pointOut() {
  const index = sheet.focused ? current() : -1;
  sheet.pointOut(index);
  list.pointOut(index);
}

function go(index) {
  const { suggestions } = draft;
  if (!suggestions[index]) return;
  sheet.select(suggestions[index], index);
  pointOut();
  tell(`${index + 1} of ${suggestions.length}: ${inWords(suggestions[index])}.`);
}

function goOn(step) {
  const { suggestions } = draft;
  if (!suggestions.length) {
    tell(draft.waiting().length ? "Still correcting." : "No suggestions.");
    return;
  }
  const here = current();
  const following = suggestions.findIndex(({ start }) => start > sheet.selection.start);
  const behind = following < 0 ? suggestions.length : following;
  const next = here >= 0 ? here + step : step > 0 ? behind : behind - 1;
  go((next + suggestions.length) % suggestions.length);
}

// What is pressed may be of a moment ago, when an answer has just changed what there is.
function stillOpen(suggestion) {
  return draft.suggestions.filter((open) => same(open, suggestion));
}

function accept(chosen) {
  if (!chosen.length) return;
  const undoable = sheet.splice(draft.accept(chosen));
  send();
  draw(); // at once: the next key may come before the next frame
  if (!undoable) tell("Accepted. So much at once cannot be undone.");
}

function reject(chosen) {
  if (!chosen.length) return;
  draft.reject(chosen);
  draw();
}

// After a decision by key, the next suggestion is the current one.
function decide(decision) {
  const index = current();
  if (index < 0) return;
  decision([draft.suggestions[index]]);
  if (draft.suggestions.length) go(Math.min(index, draft.suggestions.length - 1));
  else tell("That was the last suggestion.");
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function onKey(event) {
  if (event.isComposing) return;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === "F8") goOn(event.shiftKey ? -1 : 1);
  else if (!sheet.focused) return;
  else if (event.key === "Enter" && command && event.shiftKey) accept(draft.suggestions);
  else if (event.key === "Enter" && command) decide(accept);
  else if (event.key === "Escape" && current() >= 0) decide(reject);
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", onKey);
at("accept-all").addEventListener("click", () => {
  accept(draft.suggestions);
  sheet.focus();
});
at("restore").addEventListener("click", () => {
  draft.restore();
  sheet.focus();
  show();
});
at("copy").addEventListener("click", () => {
  sheet.copy().then(() => tell("Copied."), ({ message }) => tell(message));
});
at("again").addEventListener("click", () => courier.resume());
at("retry").addEventListener("click", () => {
  draft.retryLeft();
  send();
});
window.addEventListener("online", () => courier.resume());
if (sheet.text) edited(); // what the browser kept over a reload
