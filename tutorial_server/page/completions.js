// One turn over OpenAI's route: its request, its stream, and its failures in words.

import { ask, readiness } from "./server.js";
import { readEvents } from "./sse.js";

const LOADING_POLL_MS = 1000;
const BROKE_OFF = "The connection was lost in the middle of the answer; above is what came.";
const UNREACHABLE = "The server cannot be reached. Is it still running?";

/** A failure that a person can read; `status` 0: no answer at all, or one that broke off. */
export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * Ask for an answer; give `{text}`, `{finish}` and `{usage, timing}` as they arrive.
 * `told.wait(words)` hears of a model that still loads, `told.sent()` of each time that the
 * request goes out: no clock should count the loading. Throws Failure, or AbortError.
 */
export async function* complete(body, signal, told) {
  const reply = await post(body, signal, told);
  let ended = false;
  try {
    for await (const { event, data } of readEvents(reply.body)) {
      if (data === "[DONE]") {
        ended = true;
        break;
      }
      yield* read(event, JSON.parse(data));
    }
  } catch (error) {
    if (error instanceof Failure || signal.aborted) throw error;
    throw new Failure(BROKE_OFF);
  }
  if (!ended) throw new Failure(BROKE_OFF);
}

function* read(event, chunk) {
  if (event === "error" || chunk.error) {
    throw new Failure(sentence(chunk) ?? "The server failed in the middle of the answer.");
  }
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) yield { text: choice.delta.content };
  if (choice?.finish_reason) yield { finish: choice.finish_reason };
  if (chunk.usage) yield { usage: chunk.usage, timing: chunk.timing ?? null };
}

async function post(body, signal, told) {
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  for (let tries = 0; ; tries++) {
    told.sent();
    const reply = await reach(() => ask("v1/chat/completions", options), signal);
    if (reply.ok) return reply;
    const failure = await refusal(reply);
    if (reply.status !== 503 || tries === 3) throw failure;
    await waitUntilLoaded(failure, signal, told);
  }
}

async function reach(fetching, signal) {
  try {
    return await fetching();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure(UNREACHABLE);
  }
}

/** Return once a loading model is there; throw `failure` where nothing is loading. */
async function waitUntilLoaded(failure, signal, told) {
  for (;;) {
    const { status } = await readiness(signal);
    signal.throwIfAborted();
    if (status === "ready") return;
    if (status !== "loading") throw failure;
    told.wait("The model is still loading; your message goes out when it is ready.");
    await pause(LOADING_POLL_MS, signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

async function refusal(reply) {
  const said = sentence(await reply.json().catch(() => null));
  return new Failure(inWords(reply.status, said, retryAfter(reply)), reply.status);
}

function inWords(status, said, seconds) {
  if (status === 401) return "The server asks for a key, or does not know this one.";
  if (status === 404) return said ?? "This server has no /v1/chat/completions.";
  if (status === 429) {
    const when = seconds === null ? "a moment" : `${seconds} s`;
    return `The server is busy. ${said ?? ""} Try again in ${when}.`.replace("  ", " ");
  }
  return said ?? `The server answered with status ${status}.`;
}

/** Seconds until a refused request may be tried again, from a number or a date; or null. */
function retryAfter(reply) {
  const header = reply.headers.get("Retry-After");
  if (header === null) return null;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(1, Math.ceil(seconds)) : null;
}

/** Find the sentence in an error: OpenAI's shape, ours, or a list of faults. */
function sentence(body) {
  const said = body?.error?.message ?? body?.error ?? body?.detail;
  if (Array.isArray(said)) {
    return said.map(({ loc, msg }) => [loc?.join(" "), msg].filter(Boolean).join(": ")).join("; ");
  }
  return typeof said === "string" && said ? said : null;
}
