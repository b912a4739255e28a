// The page about the fleet: asks the gateway every second while somebody looks.

import { Trouble, call } from "./api.js";
import { Chart, clock, moment } from "./chart.js";
import { askForKey } from "./key.js";
import { drawPods } from "./pods.js";
import { extended, recent, resized, shown } from "./series.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const QUIET_MS = 10_000; // an autoscaler speaks every two seconds
const at = (id) => document.getElementById(id);

const rates = new Chart(at("rates"), [
  { name: "requests_per_s", unit: "requests a second", style: "first" },
  { name: "refused_per_s", unit: "refused", style: "second" },
  { name: "failed_per_s", unit: "failed", style: "third" },
]);
const latencies = new Chart(at("latencies"), [
  { name: "p50_ms", unit: "ms P50", style: "first" },
  { name: "p99_ms", unit: "ms P99", style: "second" },
]);
const demandKey = askForKey(at("access"), look);

let history = null;
let seenAt = null;
let timer = 0;

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const since = history?.at_ms.at(-1) ?? 0;
    const [fleet, answer] = await Promise.all([
      call("/v1/fleet", { signal }),
      call(`/v1/fleet/history?since=${since}`, { signal }),
    ]);
    await remember(answer);
    show(fleet);
  } catch (error) {
    complain(error);
    if (error.status === 401) return; // until there is a key
  }
  clearTimeout(timer);
  timer = setTimeout(look, EVERY_MS);
}

// A gateway that was started anew has a history of its own, of which only what is newer was asked for.
async function remember(answer) {
  const restarted = history !== null && history.started_ms !== answer.started_ms;
  history = extended(history, restarted ? await call("/v1/fleet/history") : answer);
}

function show(fleet) {
  seenAt = Date.now();
  at("trouble").hidden = true;
  document.querySelector("main").classList.remove("stale");
  showNow(fleet);
  drawPods(at("pods"), fleet.pods);
  at("no-pods").hidden = fleet.pods.length > 0;
  drawCharts();
  showScaling();
}

function showNow({ model, model_digest: digest, discovery_connected: discovery, totals }) {
  const last = (name) => shown(history[name].at(-1));
  const values = {
    "now-model": digest ? `${model} (${digest.replace("sha256:", "").slice(0, 8)})` : model,
    "now-pods": `${totals.eligible} of ${totals.pods}`,
    "now-load": `${shown(totals.in_flight)} of ${shown(totals.capacity)}`,
    "now-rate": `${last("requests_per_s")} / s`,
    "now-latency": `${last("p50_ms")} / ${last("p99_ms")} ms`,
    "now-queued": shown(totals.queued),
    "now-ejected": `${shown(totals.ejected)}, ${shown(totals.ejections)}${totals.panic ? "; panic: all are used" : ""}`,
    "now-discovery": discovery ? "connected" : "away; the last list of pods holds",
  };
  for (const [id, value] of Object.entries(values)) at(id).textContent = value;
}

function drawCharts() {
  if (!history) return;
  const seconds = Number(at("span").value);
  const part = recent(history, seconds);
  rates.show(part, seconds);
  latencies.show(part, seconds);
}

function showScaling() {
  const decisions = [...history.scale_decisions].reverse();
  showAutoscaler();
  at("scaling").replaceChildren(...decisions.map(({ at_ms: time, replicas, reason }) => {
    const item = document.createElement("li");
    item.textContent = `${moment(time)}: ${resized(replicas, reason)}`;
    return item;
  }));
}

function showAutoscaler() {
  const heard = history.scale_heard_ms;
  const quiet = heard !== null && history.at_ms.at(-1) - heard > QUIET_MS;
  at("autoscaler").textContent = heard === null ? "No autoscaler has been heard."
    : quiet ? `No autoscaler has been heard since ${moment(heard)}.`
      : "It decides every two seconds. These changed the size, or tell of trouble.";
}

function complain(error) {
  if (error.status === 401) demandKey();
  const known = error instanceof Trouble ? error.message : "The gateway does not answer.";
  const since = seenAt === null ? "" : ` What is shown is of ${clock(seenAt, true)}.`;
  const next = error.status === 401 ? "" : " It is tried again every second.";
  const message = `${known}${since}${next}`;
  if (at("message").textContent !== message) at("message").textContent = message;
  at("trouble").hidden = false;
  document.querySelector("main").classList.add("stale");
}

at("span").addEventListener("change", drawCharts);
document.addEventListener("visibilitychange", look);
look();
