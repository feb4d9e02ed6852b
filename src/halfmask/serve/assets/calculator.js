// What a plan costs: the numbers first, then the curves, point by point as they are computed.
"use strict";
{
  const form = document.querySelector("form");
  const button = form.querySelector("button");
  const answer = document.querySelector(".hm-answer");
  const more = document.querySelector(".hm-more");
  const charts = { noise: document.getElementById("noise"), course: document.getElementById("course") };
  const axes = { noise: "noise multiplier σ", course: "epochs" };
  const { make, number } = halfmask;
  let asked = null, curves = null, found = null;

  function draw(name) {
    const style = getComputedStyle(document.documentElement);
    const colour = (word) => style.getPropertyValue(`--hm-${word}`).trim();
    const points = curves[name].filter((point) => Number.isFinite(point.epsilon)).sort((a, b) => a.x - b.x);
    const line = { x: points.map((p) => p.x), y: points.map((p) => p.epsilon), mode: "lines+markers", line: { color: colour("accent"), width: 2 }, marker: { size: 7 }, hovertemplate: `${axes[name]} %{x:.4g}<br>ε %{y:.4g}<extra></extra>` };
    const mine = name === "noise" ? found.noise_multiplier : found.steps * found.sampling_rate;
    const here = { x: [mine], y: [found.epsilon], mode: "markers", marker: { size: 13, color: colour("warm"), symbol: "diamond" }, hovertemplate: `your plan<br>${axes[name]} %{x:.4g}<br>ε %{y:.4g}<extra></extra>` };
    const axis = { gridcolor: colour("line"), zeroline: false, color: colour("ink"), automargin: true };
    // A logarithmic axis says whole numbers, 1, 2, 5 and so on, and not the digit alone.
    const marks = [-4, -3, -2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
    const ticks = name === "noise" ? { type: "log", tickvals: marks, ticktext: marks.map(String) } : { rangemode: "tozero" };
    const layout = {
      margin: { l: 55, r: 15, t: 40, b: 50 }, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("ink"), family: "system-ui, sans-serif" },
      title: { text: name === "noise" ? "ε for other noise, same plan" : "ε spent as training goes on", font: { size: 15 }, x: 0.02 },
      xaxis: { ...axis, title: { text: axes[name] }, rangemode: name === "course" ? "tozero" : "normal" },
      yaxis: { ...axis, ...ticks, title: { text: "ε" } },
    };
    Plotly.react(charts[name], [line, here], layout, { displayModeBar: false, responsive: true });
    charts[name].dataset.points = points.length;
  }

  function say(line) {
    found = line.account;
    const plan = asked;
    answer.replaceChildren(
      `Noise multiplier σ = `, make("strong", { id: "sigma" }, number(found.noise_multiplier, 5)),
      ` keeps ε at ${number(found.epsilon)} (δ = ${number(found.delta)}) for each ${plan.get("unit")}, under ${found.adjacency}: ${found.steps.toLocaleString("en")} steps at a sampling rate of ${number(found.sampling_rate, 6)}.`,
    );
    if ("epsilon_image" in found) {
      answer.append(` For one image, or one person, of up to ${found.units_per_image} ${plan.get("unit")}s, ε is ${number(found.epsilon_image)}.`);
    }
    more.replaceChildren(
      ...line.warnings.map((text) => make("p", { class: "hm-warning" }, text)),
      make("p", { class: "hm-soft" }, "The same in a terminal: ", make("code", {}, line.command)),
    );
    answer.dataset.answer = JSON.stringify(found);
  }

  async function compute() {
    asked = new URLSearchParams(new FormData(form));
    curves = { noise: [], course: [] };
    button.disabled = true;
    answer.dataset.busy = "";
    answer.textContent = "Computing: large plans may take a minute …";
    try {
      for await (const line of halfmask.lines(await fetch(`/api/account?${asked}`))) {
        if (line.error) throw new Error(line.error);
        if (line.account) {
          say(line);
          delete answer.dataset.busy;
        } else {
          curves[line.curve].push(line);
          draw(line.curve);
        }
      }
      charts.noise.dataset.whole = asked.toString();
    } catch (error) {
      answer.replaceChildren(make("span", { class: "hm-error" }, error.message));
    } finally {
      delete answer.dataset.busy;
      button.disabled = false;
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    compute();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => found && Object.keys(charts).forEach(draw));
  compute();
}
