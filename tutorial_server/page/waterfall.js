// The picture of a request: time to the right, one step down for each token, to scale.

import { length, ms } from "./trace.js";

const SVG = "http://www.w3.org/2000/svg";
const LANE = 12; // queued and prefill, one each
const STEPS_TOP = 2 * (LANE + 4);
const AXIS = 18;
const TALLEST_STEP = 9;
const MIN_WIDTH = 1.5; // a span shorter than a pixel is still there

/** Draw spans into an svg element that is as wide as its place on the page. */
export function draw(svg, { queued, prefill, tokens, end }) {
  const width = svg.clientWidth || 280; // 0 where the panel is folded away
  const height = svg.clientHeight || 190;
  const x = (time) => (time / end) * width;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const shapes = [
    ...axis(x, end, width, height),
    queued && bar("queued", x, queued, 0),
    bar("prefill", x, prefill, LANE + 4),
    stairs(x, tokens, height - AXIS - 4 - STEPS_TOP),
  ];
  svg.replaceChildren(...shapes.filter(Boolean));
}

/** Give the times of about four ticks: 1, 2 or 5 times a power of ten apart. */
export function ticks(end) {
  const rough = end / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((wide) => wide >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

function axis(x, end, width, height) {
  return ticks(end).flatMap((time) => {
    const at = x(time);
    const line = shape("line", { class: "tick", x1: at, x2: at, y1: 0, y2: height - AXIS });
    const label = shape("text", { class: "tick", x: at, y: height - 4 });
    label.setAttribute("text-anchor", at < 20 ? "start" : at > width - 24 ? "end" : "middle");
    label.textContent = time === 0 ? "0" : tickLabel(time, end);
    return [line, label];
  });
}

function tickLabel(time, end) {
  return end >= 2000 ? `${Number((time / 1000).toFixed(2))} s` : `${Number(time.toFixed(1))} ms`;
}

function bar(kind, x, span, y) {
  const width = Math.max(x(span[1]) - x(span[0]), MIN_WIDTH);
  const rect = shape("rect", { class: kind, x: x(span[0]), y, width, height: LANE, rx: 2 });
  rect.append(shape("title", {}, `${kind}: ${ms(length(span))}`));
  return rect;
}

/** All tokens as one path: thousands of elements would slow down the answer they measure. */
function stairs(x, tokens, room) {
  if (!tokens.length) return null;
  const step = Math.min(room / tokens.length, TALLEST_STEP);
  const height = Math.max(step * 0.8, 1.8);
  const parts = tokens.map(([from, to], i) => {
    const width = Math.max(x(to) - x(from), MIN_WIDTH);
    return `M${r(x(from))} ${r(STEPS_TOP + i * step)}h${r(width)}v${r(height)}h${r(-width)}z`;
  });
  return shape("path", { class: "token", d: parts.join("") });
}

const r = (value) => Math.round(value * 100) / 100;

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}
