/*
 * dashboard/charts.js -- bars over time, by Chart.js of the distribution; beside them the same numbers as a table.
 */
import {el, replace, svg, table} from "./dom.js";
import {number, plural, share} from "./format.js";

const KINDS = [["redeemed", "Used"], ["issued", "Handed out"], ["reserved", "On hold"], ["reversed", "Reversed"], ["refused", "Refused"]];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const EARLIER = "Used in the previous period";

const dataset = (label, data, name) => ({label, data, backgroundColor: colour(name), maxBarThickness: 40});

/* Of kinds that never happened nothing is drawn; redeemed always. Beside it, what was redeemed in earlier rows. */
function datasets(rows, earlier) {
  const sets = KINDS.filter(([kind]) => kind === "redeemed" || rows.some((row) => row[kind] > 0)).map(([kind, label]) =>
    dataset(label, rows.map((row) => row[kind]), kind),
  );

  if (earlier) sets.splice(1, 0, dataset(EARLIER, earlier.map((row) => row.redeemed), "earlier"));
  return sets;
}

function options(several) {
  const line = {color: colour("line")},
    text = {color: colour("quiet")};

  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    plugins: {legend: {display: several, labels: {color: colour("text"), boxWidth: 12}}},
    scales: {
      x: {grid: {display: false}, ticks: {...text, maxRotation: 0, autoSkipPadding: 12}},
      y: {beginAtZero: true, grid: line, ticks: {...text, precision: 0}, suggestedMax: 5},
    },
  };
}

/*
 * title(period), label(row, period): what is above all of them, and below a bar; signal: when the page is left.
 * Returns {node, update(rows, earlier, period)}: a report's items, and as many from before them, or null.
 * Without Chart.js (its file is missing on the server) there is only the table, which says why.
 */
export function bars(title, label, signal) {
  const canvas = el("canvas", {role: "img"});
  const numbersBox = el("div", {class: "scroll"});
  const drawn = typeof globalThis.Chart === "function";
  const details = el("details", {open: !drawn}, el("summary", {}, "As a table"), numbersBox);
  const node = el("div", {},
    drawn
      ? el("div", {class: "chart"}, canvas)
      : el("p", {class: "small"}, "Chart.js is not installed on the server (Debian: libjs-chart.js): here are the numbers."),
    details);
  let chart = null,
    shown = {rows: [], earlier: null, period: null};

  function draw() {
    const {rows, earlier, period} = shown,
      sets = datasets(rows, earlier);

    if (!drawn) return;
    chart ??= new Chart(canvas, {type: "bar", data: {}, options: {}});
    chart.data = {labels: rows.map((row) => label(row, period)), datasets: sets};
    chart.options = options(sets.length > 1);
    chart.update("none");
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, {signal});
  signal.addEventListener("abort", () => chart?.destroy());
  return {
    node,
    update(rows, earlier, period) {
      const total = rows.reduce((sum, row) => sum + row.redeemed, 0);
      const lines = rows.map((row, i) => [
        label(row, period),
        ...KINDS.map(([kind]) => number(row[kind])),
        ...(earlier ? [number(earlier[i]?.redeemed)] : []),
      ]);

      shown = {rows, earlier, period};
      canvas.setAttribute("aria-label", `${title(period)}: ${number(total)} used in ${plural(rows.length, "period")}`);
      replace(numbersBox,
        table(title(period), ["From", ...KINDS.map(([, text]) => text), ...(earlier ? [EARLIER] : [])], lines.reverse(), "numbers"));
      draw();
    },
  };
}

/* A line as large as a word. */
export function sparkline(values, text) {
  const most = Math.max(1, ...values);
  const points = values.map((v, i) => `${((i / Math.max(1, values.length - 1)) * 100).toFixed(1)},${(20 - (v / most) * 18).toFixed(1)}`);

  return svg("svg", {class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": text},
    svg("polyline", {points: points.join(" ")}));
}

/* parts: [class, count, name]; whole: what the bar's length represents. */
export function stockBar(parts, whole, text) {
  return el(
    "div",
    {class: "bar", role: "img", "aria-label": text},
    parts
      .filter(([, count]) => count > 0)
      .map(([kind, count, name]) => {
        const part = el("span", {class: kind, title: `${name}: ${number(count)}`});

        part.style.width = `${share(count, whole)}%`;
        return part;
      }),
  );
}
