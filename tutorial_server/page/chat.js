// The page: what happens when somebody types, sends, stops or begins anew.

import { complete, Failure } from "./completions.js";
import { key, watch } from "./server.js";
import { prepareSettings, sampling, systemPrompt } from "./settings.js";
import { Trace } from "./trace.js";
import { messages, Turn } from "./turns.js";
import {
  announce, byId, fitPrompt, goToEnd, keepingPlace, showButtons, showLatest, showServer,
  showTrace, toggle,
} from "./view.js";

const [log, prompt] = ["log", "prompt"].map(byId);
const DRAW_MS = 100;

let turns = [];
let running = null; // {turn, abort} while an answer is awaited
let trace = null; // of the last request
let frame = null; // the one that will show the next pieces
let model = null; // as the server calls it; without a name it is the one that is served

// --- a turn -------------------------------------------------------------------------

function send(question) {
  if (running || !question.trim()) return;
  const turn = new Turn(question);
  const body = {
    ...(model && { model }),
    messages: messages(turns, question, systemPrompt()),
    stream: true,
    stream_options: { include_usage: true },
    ...sampling(),
  };
  turns.push(turn);
  byId("welcome").hidden = true;
  log.append(turn.element);
  goToEnd();
  follow(turn, body);
}

async function follow(turn, body) {
  const abort = new AbortController();
  running = { turn, abort };
  trace = new Trace();
  turn.state = "waiting";
  showButtons(true);
  announce("Sent.");
  const ticking = setInterval(() => showTrace(trace), DRAW_MS);
  try {
    await receive(turn, body, abort.signal, trace);
    turn.state = "done";
    announce(`The answer: ${turn.answer || "no text."}`);
  } catch (error) {
    keepingPlace(() => end(turn, error, abort.signal.aborted));
  } finally {
    clearInterval(ticking);
    finish(turn);
  }
}

async function receive(turn, body, signal, trace) {
  const told = {
    wait: (words) => keepingPlace(() => turn.say(words)),
    sent: () => trace.start(),
  };
  for await (const part of complete(body, signal, told)) {
    if (part.text) {
      trace.piece();
      write(turn, part.text);
    }
    if (part.finish === "length") turn.say("The token limit ended this answer.");
    if (part.usage) Object.assign(trace, { usage: part.usage, timing: part.timing });
  }
  if (!turn.answer) turn.say("The model ended its turn without a word.");
}

/** Take a piece; show it with the next frame, since a fast model writes more often than that. */
function write(turn, text) {
  if (!turn.answer) {
    turn.state = "writing";
    turn.say("");
  }
  turn.answer += text;
  frame ??= requestAnimationFrame(() => {
    frame = null;
    keepingPlace(() => turns.at(-1)?.show());
  });
}

/** Say how an answer broke off, and offer what helps. What came of it stays. */
function end(turn, error, wasStopped) {
  turn.state = wasStopped ? "stopped" : "failed";
  turn.say(wasStopped ? stoppedAfter(turn) : failedBy(error));
  announce(turn.note.textContent);
  turn.offer("Try again", () => again(turn));
  if (!turn.answer) turn.offer("Edit", () => edit(turn));
  if (error.status === 401) askForKey();
}

function stoppedAfter(turn) {
  return turn.answer ? "Stopped; above is what came." : "Stopped before the first word.";
}

function failedBy(error) {
  if (error instanceof Failure) return error.message;
  console.error(error);
  return "This page itself failed; the browser’s console says why.";
}

function finish(turn) {
  trace.end();
  running = null;
  keepingPlace(() => {
    turn.show(); // a tab that nobody sees has no frames
    turn.sumUp(trace);
  });
  showTrace(trace);
  showButtons(false);
  refresh();
}

/** Ask a turn's question anew, with the settings of now; later turns go with it. */
function again(turn) {
  if (running) return;
  remove(turn);
  prompt.focus();
  send(turn.question);
}

function edit(turn) {
  if (running) return;
  remove(turn);
  prompt.value = turn.question;
  fitPrompt();
  prompt.focus();
}

function remove(turn) {
  for (const gone of turns.splice(turns.indexOf(turn))) gone.element.remove();
  byId("welcome").hidden = turns.length > 0;
}

function stop() {
  running?.abort.abort();
}

function begin() {
  stop();
  for (const turn of turns) turn.element.remove();
  turns = [];
  byId("welcome").hidden = false;
  byId("latest").hidden = true;
  prompt.focus();
  announce("A new conversation.");
}

// --- the server ---------------------------------------------------------------------

function hear(state, gauges) {
  model = state.model ?? model;
  showServer(state, gauges);
  if (state.status === "locked") askForKey(false);
}

function askForKey(focus = true) {
  byId("key-form").hidden = false;
  if (focus) byId("key").focus();
}

function useKey(event) {
  event.preventDefault();
  key.set(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  refresh();
  prompt.focus();
  const last = turns.at(-1);
  if (last?.state === "failed" && !last.answer) again(last);
}

// --- what people do -----------------------------------------------------------------

function submit(event) {
  event.preventDefault();
  if (running) return announce("The answer is still being written; Escape stops it.");
  const question = prompt.value;
  if (!question.trim()) return;
  prompt.value = "";
  fitPrompt();
  prompt.focus();
  send(question);
}

function onPromptKey(event) {
  // Enter that ends an input method's composition is not meant for us (229: Safari).
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  submit(event);
}

function onKey(event) {
  if (event.key === "Escape" && !event.isComposing && running) stop();
}

prepareSettings();
byId("composer").addEventListener("submit", submit);
byId("key-form").addEventListener("submit", useKey);
byId("stop").addEventListener("click", stop);
byId("new").addEventListener("click", begin);
byId("latest").addEventListener("click", goToEnd);
byId("toggle-timing").addEventListener("click", () => toggle("timing"));
byId("toggle-settings").addEventListener("click", () => toggle("settings"));
prompt.addEventListener("keydown", onPromptKey);
prompt.addEventListener("input", fitPrompt);
document.addEventListener("keydown", onKey);
log.addEventListener("scroll", showLatest);
for (const button of byId("welcome").querySelectorAll("button")) {
  button.addEventListener("click", () => {
    prompt.focus();
    send(button.textContent);
  });
}
new ResizeObserver(() => showTrace(trace)).observe(byId("waterfall")); // it may unfold late
const refresh = watch(hear);
prompt.focus();
