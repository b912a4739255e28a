// The history of the fleet as columns of numbers, and what a chart needs to know of them. Pure.

const KEPT = 900; // seconds, as many as the gateway keeps
const GAP_MS = 5000; // over a longer silence no line is drawn
const COLUMNS = ["at_ms", "requests_per_s", "refused_per_s", "failed_per_s", "in_flight", "p50_ms", "p99_ms"];

// Adds what came since; another run of the gateway begins anew.
export function extended(history, answer) {
  const known = history?.started_ms === answer.started_ms ? history : null;
  const last = known?.at_ms.at(-1) ?? 0;
  const fresh = answer.at_ms.findIndex((at) => at > last);
  const result = { started_ms: answer.started_ms, scale_decisions: answer.scale_decisions, scale_heard_ms: answer.scale_heard_ms };
  for (const name of COLUMNS) {
    const added = fresh < 0 ? [] : answer[name].slice(fresh);
    result[name] = [...(known?.[name] ?? []), ...added].slice(-KEPT);
  }
  return result;
}

// A decision in one line: the sizes, which its reason begins with in words ("add 2 to be 3: ..."), and then why.
export function resized(replicas, reason) {
  const [head, change, by] = /^(?:(add|remove) (\d+) to be \d+|stay at \d+): /.exec(reason) ?? [""];
  const before = change ? `${change === "add" ? replicas - by : replicas + Number(by)} -> ` : "";
  return `${before}${replicas} ${replicas === 1 ? "pod" : "pods"}: ${reason.slice(head.length)}`;
}

// The part of a history that is not older than so many seconds before its end.
export function recent(history, seconds) {
  const from = (history.at_ms.at(-1) ?? 0) - seconds * 1000;
  const first = history.at_ms.findIndex((at) => at >= from);
  return Object.fromEntries(COLUMNS.map((name) => [name, history[name].slice(Math.max(0, first))]));
}

// Round steps for an axis from 0 to at least `highest`, and to 1, at most five of them.
export function steps(highest) {
  const most = Math.max(highest, 1);
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const count = Math.ceil(most / step);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

// The data of an SVG path; there is no line where there is no value, and a lone value becomes a dot.
export function line(times, values, x, y) {
  let data = "";
  let pen = false;
  times.forEach((time, index) => {
    const value = values[index];
    if (value === null) {
      pen = false;
      return;
    }
    if (pen && time - times[index - 1] > GAP_MS) pen = false;
    const point = `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    data += pen ? `L${point}` : `M${point}h0`;
    pen = true;
  });
  return data;
}

// The index of the time nearest to `time`.
export function nearest(times, time) {
  let best = 0;
  times.forEach((other, index) => {
    if (Math.abs(other - time) < Math.abs(times[best] - time)) best = index;
  });
  return best;
}

export function shown(value) {
  if (value === null || value === undefined) return "\u2013";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}
