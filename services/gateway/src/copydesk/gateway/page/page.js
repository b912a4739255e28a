"use strict";
// Corrects the text box as its writer pauses. Whatever a person or the model wrote is put in as text, never as HTML.

const PAUSE_MS = 450;
const PATIENCE_MS = 700;
const at = (id) => document.getElementById(id);
const [text, result, status, problem] = ["text", "result", "status", "problem"].map(at);
let timer = 0;
let underway = null;
let corrected = null;

function marked(tag, string) {
  const element = document.createElement(tag);
  element.textContent = string;
  if (/^\s*\n\s*$/.test(string)) element.className = "break";
  return element;
}

// Offsets count Unicode code points, JavaScript's strings count UTF-16 units: hence the array.
function show(source, edits) {
  const points = Array.from(source);
  const parts = [];
  let done = 0;
  for (const { start, end, replacement } of edits) {
    parts.push(document.createTextNode(points.slice(done, start).join("")));
    if (end > start) parts.push(marked("del", points.slice(start, end).join("")));
    if (replacement) parts.push(marked("ins", replacement));
    done = end;
  }
  parts.push(document.createTextNode(points.slice(done).join("")));
  result.replaceChildren(...parts);
}

function complain(message) {
  problem.textContent = message;
  problem.hidden = !message;
  if (message) status.textContent = "";
}

function settle(answer) {
  corrected = answer;
  result.classList.remove("stale");
  for (const id of ["take", "copy"]) at(id).disabled = answer === null;
}

// What stands under "Corrected" is of an older text now: to take it would throw away what was written since.
function age() {
  settle(null);
  result.classList.add("stale");
}

async function ask(source, signal) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const response = await fetch("/v1/correct", {
    method: "POST", headers, signal, body: JSON.stringify({ text: source.toWellFormed?.() ?? source }),
  });
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  if (response.status === 401) at("access").hidden = false;
  throw new Error(answer?.error?.message ?? `The server answered with status ${response.status}.`);
}

async function correct() {
  clearTimeout(timer);
  underway?.abort();
  const source = text.value;
  if (!source.trim()) {
    result.replaceChildren();
    settle(null);
    complain("");
    status.textContent = "";
    return;
  }
  const mine = underway = new AbortController();
  const begun = performance.now();
  age();
  const waiting = setTimeout(() => { status.textContent = "Correcting\u2026"; }, PATIENCE_MS);
  try {
    const answer = await ask(source, mine.signal);
    show(source, answer.edits);
    if (text.value === source) settle(answer.corrected);
    complain("");
    const count = answer.edits.length;
    const edits = count === 0 ? "Nothing to correct" : count === 1 ? "1 edit" : `${count} edits`;
    const skipped = answer.skipped.filter((part) => part.reason !== "nothing_to_correct").length;
    const left = skipped ? `, ${skipped} ${skipped === 1 ? "sentence" : "sentences"} left as written` : "";
    status.textContent = `${edits}${left}, in ${Math.round(performance.now() - begun)} ms`
      + ` (${Math.round(answer.latency_ms)} ms in the fleet).`;
  } catch (error) {
    if (mine.signal.aborted) return;
    complain(error instanceof TypeError ? "The server cannot be reached. Your text is still here." : error.message);
  } finally {
    clearTimeout(waiting);
  }
}

text.addEventListener("input", () => {
  clearTimeout(timer);
  age();
  timer = setTimeout(correct, PAUSE_MS);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    correct();
  }
});
at("now").addEventListener("click", correct);
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  correct();
});
at("take").addEventListener("click", () => {
  text.focus();
  text.select();
  // Unlike setting the value, this can be undone with Ctrl+Z; it is deprecated, but nothing replaces it.
  if (!document.execCommand("insertText", false, corrected)) text.value = corrected;
  correct();
});
at("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(corrected);
    status.textContent = "Copied.";
  } catch {
    complain("The browser does not allow copying here; select the text instead.");
  }
});
if (text.value.trim()) correct();
