// One call of the gateway's API, and what can go wrong with it.

import { apiKey } from "./key.js";

const DEADLINE_MS = 20_000; // beyond it an answer is of no use to somebody who writes

// `status` is 0 when there was no answer at all; `retryAfter` are the seconds the server asked to wait.
export class Trouble extends Error {
  constructor(message, { status = 0, code = "", retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

export async function call(path, { body, signal, headers = {} } = {}) {
  const request = { headers: { ...headers }, signal };
  if (apiKey()) request.headers.Authorization = `Bearer ${apiKey()}`;
  if (body !== undefined) {
    request.method = "POST";
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const response = await reach(path, request);
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Trouble(answer?.error?.message ?? `The server answered with status ${response.status}.`, {
    status: response.status,
    code: answer?.error?.code ?? "",
    retryAfter: Number(response.headers.get("Retry-After")) || 0,
  });
}

// What the server says of the latency is its own; what this says is what a person waited.
export async function correct(sentence, signal) {
  const begun = performance.now();
  const headers = { "X-Request-Deadline-Ms": String(DEADLINE_MS) };
  const answer = await call("/v1/correct", { body: { text: sendable(sentence) }, signal, headers });
  return { ...answer, waited_ms: performance.now() - begun };
}

// The API takes no NUL and no half of a surrogate pair; each becomes one other character, so that offsets hold.
function sendable(text) {
  return (text.toWellFormed?.() ?? text).replaceAll("\0", "\ufffd");
}

async function reach(path, request) {
  try {
    return await fetch(path, request);
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new Trouble("The server cannot be reached.");
  }
}
