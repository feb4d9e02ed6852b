// The token comes behind the # of the address, which a browser sends to nobody; it is kept for this tab alone.
"use strict";
const halfmask = {
  token: () => sessionStorage.getItem("halfmask-token") || "",
  keep(token) { sessionStorage.setItem("halfmask-token", token); },
  // An element with attributes and children; text is always text, whatever a run is called.
  make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  },
  number(value, digits = 4) {
    if (value === "infinity") return "∞";
    if (typeof value !== "number") return "–";
    const text = value.toPrecision(digits);
    return text.includes("e") ? text : String(Number(text));
  },
  title(run) {
    const words = [run.method, typeof run.epsilon === "number" ? `ε = ${run.epsilon}` : null, run.seed == null ? null : `seed ${run.seed}`];
    return words.filter(Boolean).join(", ");
  },
  // Lines of JSON as they come; a refusal is an error with the server's own sentence.
  async *lines(answer) {
    if (!answer.ok) {
      let reason = `the server answered ${answer.status}`;
      try { reason = (await answer.json()).error || reason; } catch { /* no sentence came */ }
      throw new Error(reason);
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) yield JSON.parse(part);
    }
  },
};
{
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    halfmask.keep(given);
    history.replaceState(null, "", location.pathname + location.search);
  }
}
