// The table of the pods.

import { shown } from "./series.js";

// A state is told by its sign as well as by its colour.
const SIGNS = {
  ready: "\u25cf", warming: "\u25d0", draining: "\u25d1", ejected: "\u25b2", disconnected: "\u2715", unused: "\u25cb",
};

export function drawPods(body, pods) {
  body.replaceChildren(...pods.map(row));
}

function row(pod) {
  const element = document.createElement("tr");
  const name = cell("th", pod.id);
  name.scope = "row";
  name.title = pod.digest; // tells the versions of a model apart, during a rollout
  element.append(name, cell("td", pod.address), cell("td", pod.zone || "\u2013"), state(pod), load(pod),
    cell("td", shown(pod.running)), cell("td", shown(pod.queued)), cell("td", milliseconds(pod.mean_ms)),
    cell("td", milliseconds(pod.ewma_ms)), cell("td", shown(pod.requests)), cell("td", shown(pod.errors)));
  return element;
}

function state(pod) {
  const element = cell("td", `${SIGNS[pod.state] ?? "?"} ${pod.state}${because(pod)}`);
  element.className = pod.state;
  return element;
}

function because({ ejected, ejected_ms: left, eligible, weight }) {
  if (ejected !== null) return ` for ${ejected}, ${shown(Math.ceil(left / 1000))} s more`;
  return eligible && weight < 1 ? `, new: ${Math.round(weight * 100)} % of a share` : "";
}

// The bar repeats the numbers for the eye.
function load({ in_flight, capacity }) {
  const element = cell("td", `${shown(in_flight)} of ${shown(capacity)} `);
  const bar = document.createElement("progress");
  bar.max = Math.max(capacity, 1);
  bar.value = in_flight;
  bar.ariaHidden = "true";
  element.append(bar);
  return element;
}

function milliseconds(value) {
  return value === null ? "\u2013" : `${shown(value)} ms`;
}

function cell(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
