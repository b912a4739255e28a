// How long answers took, as a person waits for them.

const KEPT = 50;

export class Latency {
  #last = [];

  add(milliseconds) {
    this.#last = [...this.#last.slice(1 - KEPT), milliseconds];
  }

  inWords() {
    const [count, last] = [this.#last.length, this.#last.at(-1)];
    if (!count) return "";
    const median = [...this.#last].sort((a, b) => a - b)[Math.floor((count - 1) / 2)];
    const shown = `Last answer in ${Math.round(last)} ms`;
    return count < 3 ? `${shown}.` : `${shown}, median of the last ${count}: ${Math.round(median)} ms.`;
  }
}
