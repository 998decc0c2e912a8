// The conversation: each turn is a question, its answer so far, and how it ended.

import { ms } from "./trace.js";

/** One turn on the page. All that was typed or said goes in as text nodes, never as markup. */
export class Turn {
  constructor(question) {
    this.question = question;
    this.answer = "";
    this.element = make("article", "turn");
    this.element.append(...this.#parts());
  }

  #parts() {
    this.text = document.createTextNode("");
    this.body = make("div", "answer");
    this.body.dir = "auto";
    this.body.append(this.text);
    this.note = make("p", "note");
    this.meta = make("p", "meta");
    this.actions = make("div", "actions");
    const asked = make("div", "question");
    asked.dir = "auto";
    asked.textContent = this.question;
    return [heading("You said"), asked, heading("The answer"), this.body,
      this.note, this.meta, this.actions];
  }

  /** Set the state: waiting, writing, done, stopped or failed; the style sheet shows it. */
  set state(state) {
    this.element.dataset.state = state;
  }

  get state() {
    return this.element.dataset.state;
  }

  /** Bring what is shown up to what has come. */
  show() {
    this.text.appendData(this.answer.slice(this.text.length));
  }

  say(words) {
    this.note.textContent = words;
  }

  /** Sum up a measured answer in one small line. */
  sumUp(trace) {
    if (trace.ttft === null) return;
    const parts = [
      trace.tokens === 1 ? "1 token" : `${trace.tokens} tokens`,
      `${ms(trace.ttft)} to the first`,
      trace.rate !== null && `${trace.rate.toFixed(1)} tokens/s`,
    ];
    this.meta.textContent = parts.filter(Boolean).join(" · ");
  }

  offer(label, action) {
    const button = make("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", action);
    this.actions.append(button);
  }
}

/**
 * Give the messages of a conversation for the next question. A turn without an answer was
 * never part of it; one that was stopped is, with as much as the reader has seen.
 */
export function messages(turns, question, system) {
  const told = turns.filter((turn) => turn.answer);
  return [
    ...(system.trim() ? [{ role: "system", content: system }] : []),
    ...told.flatMap(({ question, answer }) => [
      { role: "user", content: question },
      { role: "assistant", content: answer },
    ]),
    { role: "user", content: question },
  ];
}

function make(tag, className = "") {
  const element = document.createElement(tag);
  element.className = className;
  return element;
}

function heading(words) {
  const element = make("h2", "unseen");
  element.textContent = words;
  return element;
}
