// Server-Sent Events from a fetch: the browser's EventSource cannot send a POST.

/** Give `{event, data}` for each event of a body, wherever its chunks are cut. */
export async function* readEvents(body) {
  let event = "", data = [];
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length) yield { event: event || "message", data: data.join("\n") };
      event = "";
      data = [];
      continue;
    }
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (field === "data") data.push(value ?? "");
    if (field === "event") event = value ?? "";
  }
}

/** Split bytes at CR LF, LF or CR; a line without an end is dropped, as the standard asks. */
async function* readLines(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder(); // also takes a byte order mark away
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      // A CR at the very end waits: an LF that belongs to it may come next.
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      yield* lines;
    }
  } finally {
    reader.cancel().catch(() => {}); // whoever stops reading also stops the server's work
  }
}
