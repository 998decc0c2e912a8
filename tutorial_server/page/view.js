// What the page shows around the turns, and when a screen reader hears of it.

import { ms, spans, summary } from "./trace.js";
import { draw } from "./waterfall.js";

export const byId = (id) => document.getElementById(id);
const FOLLOW_PX = 48; // nearer to the end than this, the log follows what is written
const WORDS = {
  unknown: "connecting",
  loading: "loading the model",
  stopped: "stopped",
  stopping: "stopping",
  locked: "needs a key",
  lost: "no connection",
};

/** Show the figures and the picture of a request, under way or ended. */
export function showTrace(trace) {
  if (!trace) return;
  const parts = spans(trace);
  delete byId("timing").dataset.empty;
  byId("ttft").textContent = trace.ttft === null ? "–" : ms(trace.ttft);
  byId("rate").textContent = trace.rate === null ? "–" : trace.rate.toFixed(1);
  byId("summary").textContent = trace.ended === null ? "Under way …" : summary(trace, parts);
  byId("legend").classList.toggle("together", !parts.queued);
  draw(byId("waterfall"), parts);
}

/** Show the server's state and its gauges; what it does not tell is a dash. */
export function showServer({ status, model: name }, { waiting, running, cache }) {
  const words = status === "ready" ? name ?? "ready" : WORDS[status] ?? status;
  const pill = byId("status");
  if (pill.textContent !== words) pill.firstElementChild.textContent = words;
  pill.dataset.state = status;
  byId("waiting").textContent = waiting ?? "–";
  byId("running").textContent = running ?? "–";
  byId("cache").textContent = cache === null ? "–" : percent(cache);
  byId("cache-meter").value = cache ?? 0;
}

function percent(part) {
  return `${(part * 100).toFixed(part > 0 && part < 0.1 ? 1 : 0)}%`;
}

/** Offer to stop while an answer is written, and to send while none is. */
export function showButtons(isWriting) {
  const hadFocus = document.activeElement === byId("stop");
  byId("send").hidden = isWriting;
  byId("stop").hidden = !isWriting;
  if (hadFocus) byId("prompt").focus();
}

/** Tell a screen reader once what has become of the answer, not each token of it. */
export function announce(words) {
  byId("announcer").textContent = words;
}

/** Change the log; stay at its end if that is where the reader was. */
export function keepingPlace(change) {
  const wasAtEnd = isAtEnd();
  change();
  if (wasAtEnd) goToEnd();
  showLatest();
}

export function goToEnd() {
  byId("log").scrollTop = byId("log").scrollHeight;
}

/** Offer the way to the end to who is not there. */
export function showLatest() {
  byId("latest").hidden = isAtEnd();
}

function isAtEnd() {
  const log = byId("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < FOLLOW_PX;
}

/** Make the message's box as high as its text; the style sheet says how high at most. */
export function fitPrompt() {
  const prompt = byId("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

/** On a narrow screen: unfold one panel, and fold the other. */
export function toggle(panel) {
  for (const name of ["timing", "settings"]) {
    const open = name === panel && !byId(name).classList.contains("open");
    byId(name).classList.toggle("open", open);
    byId(`toggle-${name}`).setAttribute("aria-expanded", String(open));
  }
}
