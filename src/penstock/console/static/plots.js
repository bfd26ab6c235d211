// Plots as SVG: sparklines, area charts over time, bars of shares.

import { h, s, short } from "./dom.js";

// A line without axes, as wide as its cell. `points` are [seconds, value].
export function spark(points, label, { width = 96, height = 22 } = {}) {
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (points.length < 2) return svg;
  const { path, area } = shape(points, Math.max(...points.map((p) => p[1]), 1), { left: 0, right: width, low: height - 1, high: 2 });
  svg.append(s("path", { class: "area", d: area }), s("path", { class: "line", d: path }));
  return svg;
}

// The path of points between the lines `low` (0) and `high` (`top`) of a picture.
function shape(points, top, { left, right, low, high }) {
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const span = Math.max(last - first, 1e-9);
  const at = ([t, v]) => [left + ((t - first) / span) * (right - left), low - (v / top) * (low - high)];
  const steps = points.map(at).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`);
  const path = `M${steps.join("L")}`;
  return { path, area: `${path}L${right},${low}L${left},${low}Z` };
}

const LEFT = 54;

// The end of an axis whose half is a round number, too. Whole numbers have no halves: their axis ends at 2 or more.
export const niceTop = (value, { whole = false, base = 10 } = {}) => {
  const least = whole ? 2 : 1;
  if (value <= least) return value > 0 || whole ? least : 1;
  const unit = base === 10 ? 1 : base ** Math.floor(Math.log(value) / Math.log(base));
  const power = unit * 10 ** Math.floor(Math.log10(value / unit));
  const found = [1, 2, 4, 5, 10, 20].map((n) => n * power).find((n) => n >= value);
  return whole && found % 2 ? found + 1 : found;
};

// A chart that fills its container and says the value under the pointer. `update` replaces the points.
// `axis` has the options of `niceTop`.
export function chart({ label, format = short, height = 120, axis = {} }) {
  const svg = s("svg", { class: "chart", role: "img", "aria-label": label, height });
  const readout = h("span", { class: "readout" });
  const box = h("figure", { class: "chart-box" }, h("figcaption", {}, h("span", { class: "label" }, label), readout), svg);
  let points = [];
  const draw = () => {
    const width = Math.max(120, svg.clientWidth || 300);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const last = points[points.length - 1];
    readout.textContent = last ? format(last[1]) : "–";
    svg.setAttribute("aria-label", `${label}: ${last ? format(last[1]) : "no value yet"}`);
    const [low, high] = [height - 17, 9];
    const top = niceTop(Math.max(...points.map((p) => p[1]), 0), axis);
    for (const share of [0, 0.5, 1]) {
      const y = low - share * (low - high);
      svg.append(s("line", { class: "grid", x1: LEFT, x2: width, y1: y, y2: y }));
      svg.append(s("text", { class: "tick", x: LEFT - 6, y: y + 3.5, "text-anchor": "end" }, format(top * share)));
    }
    if (points.length < 2) {
      svg.append(s("text", { class: "tick", x: width / 2, y: height / 2, "text-anchor": "middle" }, "collecting samples…"));
      return;
    }
    const drawn = shape(points, top, { left: LEFT, right: width, low, high });
    svg.append(s("path", { class: "area", d: drawn.area }), s("path", { class: "line", d: drawn.path }));
    for (const [x, t, anchor] of [[LEFT, points[0][0], "start"], [width, last[0], "end"]]) {
      const time = new Date(t * 1000).toLocaleTimeString([], { hour12: false });
      svg.append(s("text", { class: "tick", x, y: height - 3, "text-anchor": anchor }, time));
    }
  };
  svg.addEventListener("pointermove", (e) => {
    if (points.length < 2) return;
    const box = svg.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (e.clientX - box.left - LEFT) / (box.width - LEFT)));
    const wanted = points[0][0] + share * (points[points.length - 1][0] - points[0][0]);
    const near = points.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a));
    readout.textContent = `${format(near[1])} at ${new Date(near[0] * 1000).toLocaleTimeString([], { hour12: false })}`;
  });
  svg.addEventListener("pointerleave", draw);
  new ResizeObserver(draw).observe(svg);
  return { node: box, update(found) { points = found; draw(); } };
}

// A share of a whole, such as a used disk.
export function meter(share, label, level = "") {
  const bar = h("span", { class: `meter ${level}`, role: "img", "aria-label": label, title: label }, h("span", {}));
  bar.firstChild.style.width = `${Math.round(Math.min(1, Math.max(0, share)) * 100)}%`;
  return bar;
}
