// The settings panel: what an answer is asked with, kept within its bounds.

const byId = (id) => document.getElementById(id);
const NUMBERS = { "top-k": 0, limit: 256 };
const SLIDERS = ["temperature", "top-p"];

/** Keep the numbers beside the sliders true, and typed numbers within bounds. */
export function prepareSettings() {
  for (const id of SLIDERS) {
    byId(id).addEventListener("input", () => showValue(id));
    showValue(id); // a browser restores fields on reload
  }
  for (const id of Object.keys(NUMBERS)) {
    byId(id).addEventListener("change", () => (byId(id).value = whole(id)));
  }
  byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
}

export const systemPrompt = () => byId("system").value;

/** Give the settings in the words of OpenAI's route; `top_k` is its common extra. */
export function sampling() {
  const topK = whole("top-k");
  return {
    max_tokens: whole("limit"),
    temperature: Number(byId("temperature").value),
    top_p: Number(byId("top-p").value),
    ...(topK > 0 && { top_k: topK }),
  };
}

function showValue(id) {
  byId(`${id}-value`).textContent = Number(byId(id).value).toFixed(2);
}

/** Read a whole number; what is none becomes the default, what is too much the bound. */
function whole(id) {
  const { value, min, max } = byId(id);
  const number = value.trim() === "" ? NaN : Math.round(Number(value));
  if (!Number.isFinite(number)) return NUMBERS[id];
  return Math.min(Math.max(number, Number(min)), Number(max));
}
