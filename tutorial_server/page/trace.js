// What one request spent its time on, in milliseconds since it was sent.

/** The clock of one request: when its pieces came, and what the server says of it. */
export class Trace {
  constructor() {
    this.start();
    this.pieces = []; // when each piece of text arrived
    this.timing = null; // the server's own: queue_ms, ttft_ms, latency_ms
    this.usage = null;
    this.ended = null;
  }

  start(now = performance.now()) {
    this.sent = now;
  }

  piece(now = performance.now()) {
    this.pieces.push(now - this.sent);
  }

  end(now = performance.now()) {
    this.ended ??= now - this.sent;
  }

  get ttft() {
    return this.pieces[0] ?? null;
  }

  /** Tokens so far: a piece is a token until the server has counted. */
  get tokens() {
    return this.usage?.completion_tokens ?? this.pieces.length;
  }

  /** Tokens per second after the first one; null before there are two. */
  get rate() {
    const seconds = (this.pieces.at(-1) - this.pieces[0]) / 1000;
    return this.pieces.length > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null;
  }
}

/**
 * Cut a request into spans `[from, to]`: queued, prefill, and one for each piece of text.
 * Where the server does not tell queued from prefill, `queued` is null and `prefill` is both.
 */
export function spans(trace, now = performance.now()) {
  const end = trace.ended ?? now - trace.sent;
  const first = trace.ttft ?? end;
  const queue = trace.timing ? Math.min(trace.timing.queue_ms, first) : null;
  const read = trace.timing ? clamp(trace.timing.ttft_ms, queue, first) : first;
  const tokens = trace.pieces.map((to, i) => [i ? trace.pieces[i - 1] : read, to]);
  return {
    queued: queue === null ? null : [0, queue],
    prefill: [queue ?? 0, read],
    tokens,
    end: Math.max(end, 1),
  };
}

/** Say the same in a sentence, for those who do not see the picture. */
export function summary(trace, parts) {
  const { queued, prefill, tokens } = parts;
  if (!tokens.length) return `Ended after ${ms(parts.end)}, before any text came.`;
  const before = queued
    ? `Queued ${ms(length(queued))}, prefill ${ms(length(prefill))}`
    : `Queued and prefill together ${ms(length(prefill))}`;
  const gaps = tokens.slice(1).map(length);
  const count = trace.tokens === 1 ? "1 token" : `${trace.tokens} tokens`;
  const sentence = `${before}, then ${count} in ${ms(tokens.at(-1)[1] - prefill[1])}`;
  if (!gaps.length) return `${sentence}.`;
  return `${sentence}: ${ms(median(gaps))} from one to the next, ${ms(Math.max(...gaps))} at most.`;
}

/** Milliseconds as people read them: 0.4 ms, 38 ms, 1.24 s. */
export function ms(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 1 : 2)} s`;
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

export const length = ([from, to]) => to - from;

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
