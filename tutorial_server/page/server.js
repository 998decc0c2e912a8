// What the page knows of the server beside its answers: the key, readiness, live gauges.

const KEY = "tutorial-server-key";
const GAUGES = {
  waiting: "tutorial_server:num_requests_waiting",
  running: "tutorial_server:num_requests_running",
  cache: "tutorial_server:kv_cache_usage_perc",
};
const POLL_MS = 2000;

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** Fetch from this server, wherever it is mounted, with the key where there is one. */
export function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  return fetch(new URL(path, document.baseURI), { cache: "no-store", ...options, headers });
}

/** Say whether a request would be taken now: `{status, model}`; never throws. */
export async function readiness(signal) {
  try {
    const reply = await ask("ready", { signal });
    if (reply.status === 401) return { status: "locked", model: null };
    const { status, model } = await reply.json();
    return { status: String(status), model: model ?? null };
  } catch {
    return { status: "lost", model: null };
  }
}

/** Read the gauges that the page shows out of Prometheus' text format; absent ones are null. */
export function parseGauges(text) {
  const entries = Object.entries(GAUGES).map(([name, stem]) => [name, sumOf(text, stem)]);
  return Object.fromEntries(entries);
}

/** Add up a metric over its labels; null where no line has it. */
function sumOf(text, stem) {
  const samples = text.split("\n")
    .filter((line) => line.startsWith(stem) && /^[{\s]/.test(line.slice(stem.length)))
    .map((line) => Number(/(?:\}|^\S+)\s*(\S+)/.exec(line)?.[1]));
  return samples.length && samples.every(Number.isFinite)
    ? samples.reduce((sum, value) => sum + value, 0)
    : null;
}

/** Call `show(state, gauges)` every two seconds, for as long as somebody can see the page. */
export function watch(show) {
  let timer = 0, state = { status: "unknown", model: null }, hasMetrics = true;
  let looking = false;

  async function look() {
    clearTimeout(timer);
    if (document.hidden || looking) return;
    looking = true;
    let gauges = parseGauges("");
    try {
      if (state.status !== "ready") state = await readiness();
      if (hasMetrics && state.status !== "lost") {
        const reply = await ask("metrics");
        if (reply.ok) gauges = parseGauges(await reply.text());
        hasMetrics = reply.status !== 404; // a server without them will not grow them
        if (reply.status === 401) state = { ...state, status: "locked" };
      } else if (!hasMetrics) {
        state = await readiness();
      }
    } catch {
      state = { ...state, status: "lost" };
    }
    looking = false;
    show(state, gauges);
    // Without a key each question would be refused; a new key looks again.
    if (state.status !== "locked") timer = setTimeout(look, POLL_MS);
  }

  document.addEventListener("visibilitychange", look);
  look();
  return look;
}
