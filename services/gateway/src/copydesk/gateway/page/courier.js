// Carries sentences to the fleet: a few side by side, the outdated ones given up, all else tried again until it works.

import { Trouble } from "./api.js";

const AT_ONCE = 5; // browsers open six connections to a server; one is left for all else
const PATIENCE_MS = 30_000; // above the deadline that goes with each request: for a server that does not answer at all
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;
const TRIES = 3; // of a sentence on which the server fails; without a server there is no end to trying

export class Courier {
  #ask;
  #on;
  #wanted = new Set();
  #underway = new Map();
  #tries = new Map();
  #failures = 0;
  #paused = false;
  #timer = 0;

  // `ask(text, signal)` brings an answer or throws `Trouble`. Of `on`, `answer(text, answer)` and `refusal(text, trouble)`
  // end a sentence; `trouble(trouble, seconds)` says that all is tried again after so many seconds, or, where that is
  // null, after `resume`; `recovery()` says that it works again.
  constructor(ask, on) {
    this.#ask = ask;
    this.#on = on;
  }

  // From now on exactly these are wanted, the first ones first.
  want(texts) {
    this.#wanted = new Set(texts);
    for (const [text, controller] of this.#underway) {
      if (this.#wanted.has(text)) continue;
      this.#underway.delete(text);
      controller.abort();
    }
    for (const text of this.#tries.keys()) if (!this.#wanted.has(text)) this.#tries.delete(text);
    this.#fill();
  }

  // Tries again at once.
  resume() {
    clearTimeout(this.#timer);
    this.#paused = false;
    this.#fill();
  }

  #fill() {
    const limit = this.#failures ? 1 : AT_ONCE; // in trouble, one request is enough to see whether it is over
    for (const text of this.#wanted) {
      if (this.#paused || this.#underway.size >= limit) return;
      if (!this.#underway.has(text)) this.#send(text);
    }
  }

  async #send(text) {
    const controller = new AbortController();
    const isOutdated = () => this.#underway.get(text) !== controller;
    this.#underway.set(text, controller);
    const late = setTimeout(() => controller.abort(new Trouble("The server does not answer.")), PATIENCE_MS);
    try {
      const answer = await this.#ask(text, controller.signal);
      if (!isOutdated()) this.#answered(text, answer);
    } catch (error) {
      if (!isOutdated()) this.#failed(text, controller.signal.aborted ? controller.signal.reason : error);
    } finally {
      clearTimeout(late);
      this.#fill();
    }
  }

  #answered(text, answer) {
    this.#finished(text);
    this.#on.answer(text, answer);
  }

  #failed(text, error) {
    this.#underway.delete(text);
    if (isFinal(error) || this.#triedEnough(text, error)) {
      this.#finished(text);
      this.#on.refusal(text, error);
    } else if (!this.#paused) {
      this.#pause(error);
    }
  }

  #pause(trouble) {
    this.#paused = true;
    this.#failures += 1;
    if (trouble.status === 401) {
      this.#on.trouble(trouble, null);
      return;
    }
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#failures - 1));
    const seconds = Math.max(trouble.retryAfter, wait / 1000);
    this.#timer = setTimeout(() => this.resume(), seconds * 1000);
    this.#on.trouble(trouble, seconds);
  }

  #triedEnough(text, { status }) {
    if (![500, 502, 504].includes(status)) return false;
    const tries = (this.#tries.get(text) ?? 0) + 1;
    this.#tries.set(text, tries);
    return tries >= TRIES;
  }

  #finished(text) {
    this.#wanted.delete(text);
    this.#underway.delete(text);
    this.#tries.delete(text);
    if (!this.#failures) return;
    this.#failures = 0;
    this.#on.recovery();
  }
}

// Whether asking again would bring the same: the sentence itself is refused, or the fault is this page's own.
function isFinal(error) {
  if (!(error instanceof Trouble)) return true;
  return error.status >= 400 && error.status < 500 && ![401, 408, 425, 429].includes(error.status);
}
