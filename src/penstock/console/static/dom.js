// Elements and text. Everything that comes from a cluster is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function replace(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

const GROUPED = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const grouped = (n) => (n === null || n === undefined ? "–" : typeof n === "string" ? groupDigits(n) : GROUPED.format(n));
export const short = (n) => (n === null || n === undefined ? "–" : Math.abs(n) < 10000 ? GROUPED.format(Math.round(n * 10) / 10) : SHORT.format(n));

// Offsets are strings: a number would lose digits above 2^53.
const groupDigits = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

// The name of something, cut by its box; the whole name on hover.
export const named = (text) => h("span", { class: "name", title: text }, text);

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

export const rate = (n, unit = "/s") => (n === null || n === undefined ? "–" : `${short(n)}${unit}`);

export function ago(seconds) {
  if (seconds < 1.5) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

export function clock(milliseconds, withDate = false) {
  const t = new Date(Number(milliseconds));
  if (Number.isNaN(t.getTime())) return "–";
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}.${String(t.getMilliseconds()).padStart(3, "0")}`;
  return withDate ? `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${time}` : time;
}

export const link = (path, ...children) => h("a", { href: `#/${path}` }, ...children);
export const plural = (n, one, many = `${one}s`) => `${grouped(n)} ${n === 1 ? one : many}`;
