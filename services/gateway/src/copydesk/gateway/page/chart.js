// A line chart in an <svg> of the page. Lines differ by their dashes too, and what they show can be read by keyboard.

import { line, nearest, shown, steps } from "./series.js";

const HEIGHT = 170;
const MARGIN = { top: 8, right: 10, bottom: 22, left: 52 };
const LABELS_EVERY_PX = 90;
const HALF_LABEL_PX = 30;
const MINUTE_MS = 60_000;

export class Chart {
  #svg;
  #reading;
  #lines;
  #data = null;
  #picked = null;

  // `lines` are [{name, unit, style}]: the column, what it counts, and the class that the style sheet knows.
  constructor(figure, lines) {
    this.#svg = figure.querySelector("svg");
    this.#reading = figure.querySelector("output");
    this.#lines = lines;
    this.#svg.addEventListener("pointermove", (event) => this.#pick(this.#timeAt(event.offsetX)));
    this.#svg.addEventListener("pointerleave", () => this.#pick(null));
    this.#svg.addEventListener("blur", () => this.#pick(null));
    this.#svg.addEventListener("keydown", (event) => this.#step(event));
    new ResizeObserver(() => this.#draw()).observe(figure);
  }

  // `data` has a list `at_ms`, and one for each line; `seconds` is how much time the axis spans.
  show(data, seconds) {
    this.#data = { ...data, seconds };
    this.#draw();
  }

  #draw() {
    const times = this.#data?.at_ms ?? [];
    const width = this.#svg.clientWidth;
    if (!times.length || !width) return;
    const highest = Math.max(...this.#lines.map(({ name }) => Math.max(0, ...this.#data[name])));
    const marks = steps(highest);
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#svg.replaceChildren(...this.#grid(marks, width), ...this.#paths(marks.at(-1)), ...this.#cursor());
    this.#svg.setAttribute("aria-label", this.#inWords(times.length - 1));
    this.#reading.textContent = this.#inWords(this.#picked === null ? times.length - 1 : nearest(times, this.#picked));
  }

  #grid(marks, width) {
    const right = width - MARGIN.right;
    const levels = marks.flatMap((mark) => {
      const y = this.#y(mark, marks.at(-1));
      return [this.#element("path", { class: "grid", d: `M${MARGIN.left} ${y}H${right}` }),
        this.#element("text", { x: MARGIN.left - 6, y: y + 4, class: "level" }, shown(mark))];
    });
    return [...levels, ...this.#times(width)];
  }

  #times(width) {
    const [from, to] = this.#span();
    const room = Math.max(1, Math.floor((width - MARGIN.left) / LABELS_EVERY_PX));
    const every = MINUTE_MS * Math.max(1, Math.ceil((to - from) / MINUTE_MS / room));
    const found = [];
    for (let time = Math.ceil(from / every) * every; time <= to; time += every) {
      const x = Math.min(this.#x(time), width - HALF_LABEL_PX);
      found.push(this.#element("text", { x, y: HEIGHT - 5, class: "time" }, clock(time, false)));
    }
    return found;
  }

  #paths(top) {
    return this.#lines.map(({ name, style }) => this.#element("path", {
      class: `line ${style}`,
      d: line(this.#data.at_ms, this.#data[name], (time) => this.#x(time), (value) => this.#y(value, top)),
    }));
  }

  #cursor() {
    if (this.#picked === null) return [];
    const x = this.#x(this.#data.at_ms[nearest(this.#data.at_ms, this.#picked)]);
    return [this.#element("path", { class: "cursor", d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` })];
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const times = this.#data?.at_ms ?? [];
    if (!step || !times.length) return;
    event.preventDefault();
    const from = this.#picked === null ? times.length - 1 : nearest(times, this.#picked);
    this.#pick(times[Math.min(times.length - 1, Math.max(0, from + step * (event.shiftKey ? 10 : 1)))]);
  }

  #pick(time) {
    this.#picked = time;
    this.#draw();
  }

  #inWords(index) {
    const values = this.#lines.map(({ name, unit }) => `${shown(this.#data[name][index])} ${unit}`);
    return `${clock(this.#data.at_ms[index], true)}: ${values.join(", ")}`;
  }

  #span() {
    const to = this.#data.at_ms.at(-1);
    return [to - this.#data.seconds * 1000, to];
  }

  #x(time) {
    const [from, to] = this.#span();
    const room = this.#svg.clientWidth - MARGIN.left - MARGIN.right;
    return MARGIN.left + ((time - from) / (to - from)) * room;
  }

  #timeAt(x) {
    const [from, to] = this.#data ? this.#span() : [0, 0];
    const room = this.#svg.clientWidth - MARGIN.left - MARGIN.right;
    return from + ((x - MARGIN.left) / room) * (to - from);
  }

  #y(value, top) {
    return HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  #element(name, attributes, text = "") {
    const element = document.createElementNS(this.#svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  }
}

export function clock(time, seconds) {
  const shownSeconds = seconds ? { second: "2-digit" } : {};
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...shownSeconds });
}

// With the day, unless it is today.
export function moment(time) {
  const day = new Date(time).toLocaleDateString();
  return day === new Date().toLocaleDateString() ? clock(time, true) : `${day}, ${clock(time, true)}`;
}
