// A picture goes to the server as it is, is looked at by one model after the other, and is forgotten.
"use strict";
{
  const drop = document.querySelector(".hm-drop");
  const input = drop.querySelector("input");
  const list = document.querySelector(".hm-runs");
  const told = document.querySelector(".hm-answer");
  const models = document.querySelector(".hm-models");
  const token = document.querySelector(".hm-token");
  const { make, number } = halfmask;
  let looking = null;

  const chosen = () => [...models.querySelectorAll("input:checked")].map((box) => box.value);
  const say = (text, wrong = false) => told.replaceChildren(make("span", wrong ? { class: "hm-error" } : {}, text));

  function card(line) {
    const item = make("li", { class: "hm-card", "data-run": line.run }, make("h3", {}, line.run));
    item.append(make("p", { class: "hm-soft" }, [line.task, halfmask.title(line)].filter(Boolean).join(": ")));
    if (line.error) {
      item.append(make("p", { class: "hm-warning" }, line.error));
      return item;
    }
    item.append(make("img", { src: line.drawing, alt: `what ${line.run} sees: ${line.summary}` }), make("p", {}, line.summary));
    if (line.remark) item.append(make("p", { class: "hm-soft" }, line.remark));
    return item;
  }

  async function look(file) {
    if (!file) return;
    if (looking) looking.abort();
    const mine = (looking = new AbortController());
    const runs = chosen();
    list.replaceChildren();
    delete list.dataset.done;
    if (!runs.length) return say("Choose at least one model.", true);
    if (file.size > Number(drop.dataset.most)) return say("The picture is too large: send a smaller one.", true);
    say(`Looking: 0 of ${runs.length} …`);
    const query = new URLSearchParams(runs.map((run) => ["run", run]));
    try {
      const answer = await fetch(`/api/look?${query}`, {
        method: "POST", body: file, signal: mine.signal, headers: { "X-Halfmask-Token": halfmask.token(), "Content-Type": "application/octet-stream" },
      });
      token.hidden = answer.status !== 401;
      for await (const line of halfmask.lines(answer)) {
        if (line.error && !line.run) throw new Error(line.error);
        list.append(card(line));
        say(`Looking: ${list.children.length} of ${runs.length} …`);
      }
      say(`Seen by ${number(list.children.length)} of ${runs.length} models. The picture was not kept.`);
      list.dataset.done = "";
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
    }
  }

  token.hidden = halfmask.token() !== "";
  token.querySelector("input").addEventListener("change", (event) => halfmask.keep(event.target.value.trim()));
  input.addEventListener("change", () => { look(input.files[0]); input.value = ""; });
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.dataset.over = ""; });
  }
  drop.addEventListener("dragleave", () => delete drop.dataset.over);
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    delete drop.dataset.over;
    look(event.dataTransfer.files[0]);
  });
  // A picture dropped beside the place would otherwise be opened in the page's stead.
  for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault());
}
