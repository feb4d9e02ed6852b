// Draws the charts of a report from the data inside the page, and lets switches choose what is shown. It talks to nobody.
"use strict";
(() => {
  const chosen = {};
  let data = {};

  const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const symbols = ["circle", "square", "triangle-up", "diamond", "cross", "star"];
  const place = (id) => document.getElementById(id);
  const ALL = "*";

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return { paper: of("--paper"), ink: of("--ink"), line: of("--line"), faint: of("--faint") };
  }

  function layout(more, traces) {
    const { paper, ink, line } = colours();
    const narrow = window.innerWidth < 600;
    // On a phone the legend stands below the chart, two entries in a line, and the chart keeps its height.
    const entries = more.showlegend === false ? 0 : new Set(traces.filter((one) => one.showlegend !== false).map((one) => one.name)).size;
    const below = narrow ? 24 * Math.ceil(entries / 1.5) : 0;
    const axis = { gridcolor: line, linecolor: ink, zeroline: false, automargin: true };
    return {
      paper_bgcolor: paper, plot_bgcolor: paper, font: { color: ink, size: narrow ? 12 : 14 }, hovermode: "closest",
      margin: narrow ? { l: 45, r: 10, t: 20, b: 55 + below } : { l: 60, r: 20, t: 20, b: 55 }, height: narrow ? 370 + below : 480,
      legend: narrow ? { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } } : {},
      hoverlabel: { align: "left", bgcolor: paper, bordercolor: ink, font: { color: ink } },
      ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
    };
  }

  const options = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  // Words from folders go into charts as text: plotly reads a few tags of HTML.
  const plain = (words) => String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // A value that a run does not have (a clip norm without noise) belongs to every choice.
  const fits = (one) => data.switches.every(({ name }) => {
    const wanted = chosen[name];
    return wanted === undefined || wanted === ALL || one[name] === null || one[name] === "" || one[name] === wanted;
  });

  function told(one) {
    return data.switches.filter(({ name, values }) => chosen[name] === ALL && values.length > 1 && one[name] !== null && one[name] !== "")
      .map(({ name }) => (name === "clip_norm" ? `C=${one[name]}` : one[name])).map(plain);
  }

  const lineName = (one) => [plain(one.method), ...told(one)].join(", ");

  function grouped(list, key) {
    const groups = new Map();
    for (const one of list) {
      const name = key(one);
      groups.set(name, [...(groups.get(name) || []), one]);
    }
    return groups;
  }

  function lookOf(method, nth) {
    const look = data.methods[method] || { colour: "#808080", dash: "dot" };
    return { color: look.colour, dash: nth ? dashes[nth % dashes.length] : look.dash, width: 2.5 };
  }

  function nthOf(names) {
    const seen = new Map();
    return (method, name) => {
      const known = seen.get(method) || [];
      if (!known.includes(name)) known.push(name);
      seen.set(method, known);
      return known.indexOf(name);
    };
  }

  const about = (one, metric) => [
    `<b>${lineName(one)}</b>`, one.epsilon === null ? "" : `ε asked for: ${one.epsilon}`,
    `${plain(one.values[metric].words)} over ${one.seeds} seed${one.seeds === 1 ? "" : "s"}`,
    ...one.runs.slice(0, 6).map(plain), one.runs.length > 6 ? `and ${one.runs.length - 6} more` : "",
  ].filter(Boolean).join("<br>");

  function tradeoff() {
    const metric = chosen.metric;
    const info = data.metrics.find((one) => one.name === metric);
    const points = data.points.filter((one) => fits(one) && one.values[metric]);
    const epsilons = [...new Set(points.map((one) => one.epsilon).filter((one) => one !== null))].sort((a, b) => a - b);
    const layer = chosen.published ? data.published[Number(chosen.published)] : undefined;
    const published = layer ? layer.points.filter((one) => one.values[metric] !== undefined) : [];
    const lines = epsilons.length > 1 || published.length > 0;
    const traces = lines ? curves(points, published, metric, epsilons) : bars(points, metric);
    const ticks = [...new Set([...epsilons, ...published.map((one) => one.epsilon).filter((one) => one !== null)])].sort((a, b) => a - b);
    const shape = lines
      ? { xaxis: { type: "log", title: { text: "privacy loss ε (smaller is more private)" }, tickvals: ticks, ticktext: ticks.map(String) }, yaxis: { title: { text: info ? info.axis : "" } } }
      : { xaxis: { title: { text: info ? info.axis : "" }, rangemode: "tozero" }, yaxis: { autorange: "reversed" }, showlegend: false, height: 110 + 46 * points.length };
    Plotly.react("tradeoff-chart", traces, layout(shape, traces), options);
    notes(points, layer);
  }

  function curves(points, published, metric, epsilons) {
    const nth = nthOf();
    const own = [];
    const every = [...epsilons, ...published.map((one) => one.epsilon).filter((one) => one !== null)];
    const ends = every.length ? [Math.min(...every) / 1.25, Math.max(...every) * 1.25] : [0.1, 10];
    const level = (one, name, look, words, value, spread, group) => {
      if (spread) {
        own.push({ x: [...ends, ends[1], ends[0]], y: [value - spread, value - spread, value + spread, value + spread], fill: "toself",
          fillcolor: look.color, opacity: 0.15, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: group });
      }
      const x = Array.from({ length: 9 }, (_, i) => ends[0] * (ends[1] / ends[0]) ** (i / 8));
      own.push({ x, y: x.map(() => value), mode: "lines", name, line: look, text: x.map(() => words), hovertemplate: "%{text}<extra></extra>", legendgroup: group });
    };
    for (const [name, members] of grouped(points, lineName)) {
      const look = lookOf(members[0].method, nth(members[0].method, name));
      for (const one of members.filter((point) => point.epsilon === null)) {
        level(one, name, look, about(one, metric), one.values[metric].mean, one.values[metric].spread, name);
      }
      const noised = members.filter((point) => point.epsilon !== null).sort((a, b) => a.epsilon - b.epsilon);
      if (!noised.length) continue;
      own.push({
        x: noised.map((one) => one.epsilon), y: noised.map((one) => one.values[metric].mean), mode: "lines+markers", name, line: look,
        marker: { size: 9, color: look.color }, legendgroup: name, text: noised.map((one) => about(one, metric)), hovertemplate: "%{text}<extra></extra>",
        error_y: { type: "data", array: noised.map((one) => one.values[metric].spread || 0), width: 5, color: look.color },
      });
      const runs = data.runs.filter((run) => run.epsilon !== null && fits(run) && lineName(run) === name && run.values[metric] !== undefined);
      if (runs.length > noised.length) {
        own.push({
          x: runs.map((run) => run.epsilon), y: runs.map((run) => run.values[metric]), mode: "markers", showlegend: false, legendgroup: name,
          marker: { size: 5, color: look.color, opacity: 0.55, symbol: "circle-open" },
          text: runs.map((run) => `<b>${plain(run.name)}</b><br>${run.values[metric]}<br>certified ε = ${plain(run.certified)}`), hovertemplate: "%{text}<extra></extra>",
        });
      }
    }
    for (const [method, members] of grouped(published, (one) => one.method)) {
      const name = `theirs: ${plain(method)}`;
      const look = { ...lookOf(method, 0), dash: "dot", width: 1.5 };
      for (const one of members.filter((point) => point.epsilon === null)) {
        level(one, name, look, `<b>published, not ours</b><br>${plain(method)}: ${one.values[metric]}`, one.values[metric], null, name);
      }
      const noised = members.filter((point) => point.epsilon !== null).sort((a, b) => a.epsilon - b.epsilon);
      if (!noised.length) continue;
      own.push({
        x: noised.map((one) => one.epsilon), y: noised.map((one) => one.values[metric]), mode: "lines+markers", name, line: look, legendgroup: name,
        marker: { size: 10, symbol: "diamond-open", color: look.color }, hovertemplate: "%{text}<extra></extra>",
        text: noised.map((one) => `<b>published, not ours</b><br>${plain(method)}, ε as printed: ${one.epsilon}<br>${one.values[metric]}`),
      });
    }
    return own;
  }

  function bars(points, metric) {
    return points.map((one) => {
      const look = lookOf(one.method, 0);
      const name = lineName(one) + (one.epsilon === null ? "" : `, ε = ${one.epsilon}`);
      const { mean, spread, words } = one.values[metric];
      return { type: "bar", orientation: "h", y: [name], x: [mean], marker: { color: look.color }, text: [words], textposition: "inside",
        insidetextanchor: "start", error_x: { type: "data", array: [spread || 0], visible: Boolean(spread) }, hovertext: [about(one, metric)], hovertemplate: "%{hovertext}<extra></extra>" };
    });
  }

  function notes(points, layer) {
    const words = [];
    if (points.some((one) => one.seeds === 1)) {
      const alone = points.filter((one) => one.seeds === 1).length;
      words.push(alone === points.length ? "One seed each: no spread can be shown." : `${alone} of ${points.length} points are of one seed, without a spread.`);
    }
    if (points.some((one) => one.seeds > 1)) words.push("Bars and bands are ± one sample standard deviation over seeds; small rings are single runs.");
    if (!points.length) words.push("No finished run fits this choice.");
    if (layer) words.push(`Dotted, with diamonds: published figures, theirs and not ours. ${layer.title}. ${layer.source}`);
    place("tradeoff-notes").textContent = words.join(" ");
  }

  function training() {
    const at = place("curves-chart");
    if (!at) return;
    const nth = nthOf();
    const named = new Set();
    const runs = data.runs.filter((run) => fits(run) && run.curves[chosen.curve]);
    const traces = runs.map((run) => {
      const name = [lineName(run), run.epsilon === null ? "" : `ε=${run.epsilon}`].filter(Boolean).join(" ");
      const first = !named.has(name);
      named.add(name);
      return { x: run.epochs, y: run.curves[chosen.curve], mode: "lines+markers", name, legendgroup: name, showlegend: first, marker: { size: 5 },
        line: { ...lookOf(run.method, nth(run.method, name)), width: 1.5 }, text: run.epochs.map(() => plain(run.name)), hovertemplate: "<b>%{text}</b><br>epoch %{x}: %{y}<extra></extra>" };
    });
    Plotly.react(at, traces, layout({ xaxis: { title: { text: "epoch" }, rangemode: "tozero" }, yaxis: { title: { text: data.curves[chosen.curve] } } }, traces), options);
  }

  function spectrum() {
    const at = place("spectrum-chart");
    if (!at) return;
    const nth = nthOf();
    const named = new Set();
    const traces = [];
    for (const run of data.runs.filter((one) => fits(one) && one.spectrum.length)) {
      const name = lineName(run);
      const first = !named.has(name);
      named.add(name);
      const look = lookOf(run.method, nth(run.method, name));
      traces.push({ x: run.spectrum.map((_, i) => i + 1), y: run.spectrum, mode: "lines", name, legendgroup: name, showlegend: first, line: { ...look, width: 1.2 }, opacity: 0.8,
        text: run.spectrum.map(() => plain(run.name)), hovertemplate: "<b>%{text}</b><br>direction %{x}: %{y}<extra></extra>" });
      if (run.dimension && run.spectrum[run.dimension - 1] !== undefined) {
        const share = run.captured === null ? "" : `<br>${(100 * run.captured).toFixed(1)} % of the energy`;
        traces.push({ x: [run.dimension], y: [run.spectrum[run.dimension - 1]], mode: "markers", legendgroup: name, showlegend: false, marker: { size: 10, symbol: symbols[nth(run.method, name) % symbols.length], color: look.color },
          text: [`<b>${plain(run.name)}</b><br>k = ${run.dimension} directions are kept${share}`], hovertemplate: "%{text}<extra></extra>" });
      }
    }
    Plotly.react(at, traces, layout({ xaxis: { title: { text: "direction" } }, yaxis: { type: "log", title: { text: "energy of public gradients" } } }, traces), options);
  }

  function tables() {
    for (const row of document.querySelectorAll("tr[data-group]")) {
      row.hidden = !data.switches.every(({ name }) => {
        const wanted = chosen[name], own = row.dataset[name];
        return wanted === undefined || wanted === ALL || !own || own === wanted;
      });
    }
    for (const part of document.querySelectorAll("[data-shown-for]")) {
      const wanted = chosen.group;
      part.hidden = !(wanted === undefined || wanted === ALL || part.dataset.shownFor === wanted);
    }
  }

  function draw() {
    if (place("tradeoff-chart")) tradeoff();
    training();
    spectrum();
    tables();
  }

  function start() {
    data = JSON.parse(place("report-data").textContent);
    for (const select of document.querySelectorAll("select[data-switch]")) {
      const name = select.dataset.switch;
      if (chosen[name] !== undefined && [...select.options].some((one) => one.value === chosen[name])) select.value = chosen[name];
      chosen[name] = select.value;
      select.addEventListener("change", () => {
        chosen[name] = select.value;
        draw();
      });
    }
    draw();
  }

  // A served page hands over the newest content of <main>; what was chosen, opened and scrolled to stays.
  window.halfmaskRefresh = (html) => {
    const opened = [...document.querySelectorAll("details")].map((one) => one.open);
    const fresh = new DOMParser().parseFromString(html, "text/html");
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    [...document.querySelectorAll("details")].forEach((one, i) => { one.open = opened[i] ?? one.open; });
    start();
  };

  for (const query of ["(prefers-color-scheme: dark)", "print"]) window.matchMedia(query).addEventListener("change", draw);
  start();
  performance.mark("halfmask-drawn");
})();
