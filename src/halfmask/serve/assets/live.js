// Runs that are not done, while they train: asked for every two seconds, as long as somebody looks.
"use strict";
{
  const every = 2000, restful = 6000;
  const panel = document.querySelector(".hm-live");
  const fresh = document.querySelector(".hm-new");
  let shown = panel.dataset.version, since = Date.now();
  const watched = new Set();
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  function curve(points) {
    const known = points.filter((point) => Number.isFinite(point.public_loss) && Number.isFinite(point.step));
    const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": "public loss by step" });
    if (known.length < 2) return picture;
    const losses = known.map((point) => point.public_loss);
    const low = Math.min(...losses), high = Math.max(...losses), first = known[0].step, last = known[known.length - 1].step;
    const places = known.map((point) => {
      const x = (100 * (point.step - first)) / (last - first || 1);
      return `${x.toFixed(2)},${(38 - (36 * (point.public_loss - low)) / (high - low || 1)).toFixed(2)}`;
    });
    picture.append(svg("polyline", { points: places.join(" ") }));
    return picture;
  }

  function card(run) {
    const { make, number } = halfmask;
    const last = run.curve && run.curve.length ? run.curve[run.curve.length - 1] : {};
    const item = make("li", { class: "hm-card", "data-run": run.name, "data-step": run.step ?? "" }, make("h3", {}, run.name));
    if (run.state === "done") {
      item.append(make("p", {}, "done"));
      return item;
    }
    item.append(make("p", { class: "hm-soft" }, [run.task, halfmask.title(run)].filter(Boolean).join(": ")));
    if (run.steps) item.append(make("progress", { max: run.steps, value: run.step, "aria-label": `steps of ${run.name}` }));
    const words = run.steps ? `step ${run.step} of ${run.steps}` : "getting ready";
    item.append(make("p", {}, run.state === "training" ? words : `${run.state}, ${words}`));
    if (run.curve && run.curve.length) {
      item.append(make("p", { class: "hm-soft" }, `ε so far ${number(last.epsilon)}, public loss ${number(last.public_loss)}`), curve(run.curve));
    }
    return item;
  }

  function show(found) {
    // Those that end while somebody looks stay, so that nothing vanishes under their eyes.
    for (const run of found.runs) if (run.state === "training") watched.add(run.name);
    const open = found.runs.filter((run) => run.state !== "done" || watched.has(run.name));
    panel.querySelector("ul").replaceChildren(...open.map(card));
    panel.querySelector("h2").textContent = open.some((run) => run.state === "training") ? "Training now" : "Not in the results";
    panel.hidden = open.length === 0;
    const out = panel.parentElement.querySelector(".hm-left-out");
    out.hidden = found.left_out.length === 0;
    out.textContent = `Left out, because a link or a pipe in them leads out of the folder: ${found.left_out.join(", ")}`;
  }

  // The report itself follows, now and then: what was chosen and opened in it stays.
  async function follow(version) {
    if (version === shown || Date.now() - since < restful) return;
    since = Date.now();
    const answer = await fetch("/api/report");
    if (!answer.ok) return;
    const found = await answer.json();
    shown = found.version;
    if (window.halfmaskRefresh && found.main.includes("report-data")) window.halfmaskRefresh(found.main);
    else location.reload();
  }

  async function ask() {
    if (document.visibilityState === "visible") {
      try {
        const answer = await fetch("/api/live");
        if (answer.ok) {
          const found = await answer.json();
          show(found);
          await follow(found.version);
        }
      } catch {
        fresh.hidden = false;
        fresh.textContent = "The server does not answer: it was stopped, and this page stays as it is.";
        return;
      }
    }
    setTimeout(ask, every);
  }
  ask();
}
