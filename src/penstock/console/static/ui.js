// Parts that pages share: tables that draw only their visible rows, dialogs, tabs, notes.

import { rights } from "./api.js";
import { h, replace } from "./dom.js";
import { LOADING, textOf } from "./states.js";

const ROW = 30;
const SPARE = 12;

// A table with sorting; thousands of rows cost no more than a screenful. It is loading until `update` or `fail`.
// columns: {id, label, render(row), sort(row), num, wide, first}
// `whole` draws all rows, of any height.
export function table({ label, columns, sortBy, descending = false, empty = "nothing here", onOpen, key, whole = false }) {
  let gap = LOADING, rows = [], shown = [], order = sortBy ?? null, down = descending, cursor = -1, drawn = "";
  const status = h("caption", { class: "sr" }, label);
  const head = h("tr", {});
  const body = h("tbody", {});
  const node = h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": label },
    h("table", {}, status, h("thead", {}, head), body));
  have(columns);

  function have(found) {
    columns = found;
    head.replaceChildren(...columns.map((column) => h("th", { scope: "col", class: cellClass(column), "data-id": column.id },
      column.sort ? h("button", { type: "button", on: { click: () => sortOn(column) } }, column.label) : column.label)));
  }

  function sortOn(column) {
    down = order === column.id ? !down : Boolean(column.num);
    order = column.id;
    arrange();
  }

  function arrange() {
    const column = columns.find((c) => c.id === order);
    shown = rows;
    if (column?.sort) {
      const value = column.sort;
      shown = [...rows].sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1));
    }
    for (const th of head.children) {
      const own = th.dataset.id === order;
      if (own) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    drawn = "";
    draw();
  }

  function draw() {
    const height = node.clientHeight || 600;
    const first = whole ? 0 : Math.max(0, Math.floor(node.scrollTop / ROW) - SPARE);
    const last = whole ? shown.length : Math.min(shown.length, Math.ceil((node.scrollTop + height) / ROW) + SPARE);
    const state = `${first}:${last}:${cursor}`;
    if (state === drawn) return;
    drawn = state;
    body.replaceChildren();
    if (!shown.length) {
      body.append(h("tr", {}, h("td", { class: "empty", "data-state": gap ? gap.state : "empty", colspan: columns.length || 1 }, gap ? textOf(gap) : empty)));
      return;
    }
    if (first) body.append(spacer(first));
    for (let i = first; i < last; i += 1) body.append(line(shown[i], i));
    if (last < shown.length) body.append(spacer(shown.length - last));
    else if (gap) body.append(h("tr", {}, h("td", { class: "empty", "data-state": gap.state, colspan: columns.length }, `incomplete: ${gap.reason}`)));
  }

  const spacer = (count) => {
    const row = h("tr", { "aria-hidden": "true" }, h("td", { class: "spacer", colspan: columns.length }));
    row.firstChild.style.height = `${count * ROW}px`;
    return row;
  };

  const line = (row, index) => h("tr", {
    class: [index === cursor ? "cursor" : "", onOpen ? "opens" : ""].join(" ").trim() || null,
    on: onOpen && { click: (e) => { if (!e.target.closest("a,button,input,label")) { cursor = index; onOpen(row, index); draw(); } } },
  }, columns.map((c) => h(c.first ? "th" : "td", { class: cellClass(c), ...(c.first && { scope: "row" }) }, c.render(row))));

  node.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  // Moves the cursor or opens its row; true if the key was used.
  function steer(e) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[e.key];
    if (step && shown.length) {
      cursor = Math.min(shown.length - 1, Math.max(0, cursor + step));
      const top = cursor * ROW, view = node.clientHeight - ROW;
      if (top < node.scrollTop) node.scrollTop = top;
      else if (top + ROW > node.scrollTop + view) node.scrollTop = top + ROW - view;
      draw();
      return true;
    }
    if (e.key !== "Enter" || !shown[cursor]) return false;
    onOpen(shown[cursor], cursor);
    return true;
  }
  if (onOpen) { node.setAttribute("data-opens", ""); steering.set(node, steer); }
  if (onOpen) node.addEventListener("keydown", (e) => {
    if (e.key.startsWith("Arrow") && steer(e)) e.preventDefault();
  });
  // It draws only if other rows are visible: a field with the focus must not be replaced.
  new ResizeObserver(draw).observe(node);

  return {
    node,
    // Other columns, before the rows that have them.
    have,
    // The rows (null: not known), and why they are missing or incomplete.
    update(found, why = null) {
      const kept = cursor >= 0 && key ? key(shown[cursor] ?? {}) : null;
      gap = found === null ? why ?? { state: "unknown", reason: "the brokers have not said it" } : why;
      rows = found ?? [];
      node.setAttribute("data-rows", String(rows.length));
      arrange();
      if (kept !== null) { cursor = shown.findIndex((row) => key(row) === kept); drawn = ""; draw(); }
    },
    // Rows that were known stay, and are marked as old.
    fail(why) {
      gap = rows.length ? { state: why.state, reason: `these are the last known: ${why.reason}` } : why;
      arrange();
    },
    get shown() { return shown; },
    select(index) { cursor = index; drawn = ""; draw(); },
  };
}

// Keys for the first list of a page, wherever the focus is: `j`, `k` and Enter work without a click.
const steering = new WeakMap();
export function steerFirst(root, e) {
  if (!["j", "k", "Enter"].includes(e.key) || (e.key === "Enter" && e.target.closest?.("a,button,summary"))) return false;
  const first = [...root.querySelectorAll("[data-opens]")].find((node) => node.checkVisibility());
  return Boolean(first) && steering.get(first)(e);
}

const cellClass = (c) => [c.num && "num", c.wide && "wide", c.class].filter(Boolean).join(" ") || null;

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

// A button that is hidden unless the user may use it: its right is one of those that brokers say, or they say none.
export function guarded(right, node, given = rights()) {
  node.hidden = true;
  Promise.resolve(given).then((found) => { node.hidden = Boolean(found) && !found.includes(right); });
  return node;
}

export const pill = (text, level = "") => h("span", { class: `pill ${level}` }, text);
export const LEVELS = { Healthy: "good", Degraded: "warn", Unhealthy: "bad", Unknown: "dim" };
export const severity = { info: "dim", warning: "warn", error: "bad" };

export function note(text, level = "bad") {
  return h("p", { class: `note ${level}`, role: level === "bad" ? "alert" : "status" }, text);
}

let toasts;
export function toast(text, level = "good") {
  toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const one = h("div", { class: `toast ${level}` }, text);
  toasts.append(one);
  setTimeout(() => one.remove(), level === "bad" ? 8000 : 4000);
}

// A modal dialog with a form. `submit` may throw; its message is shown and the dialog stays.
export function dialog({ title, body, action = "Save", danger = false, submit, wide = false }) {
  const errors = h("div", { class: "errors" });
  const button = h("button", { class: danger ? "danger" : "primary", type: "submit" }, action);
  const node = h("dialog", { class: wide ? "wide" : null, "aria-label": title },
    h("form", { method: "dialog", on: { submit: run } },
      h("header", {}, h("h2", {}, title), h("button", { type: "button", class: "ghost", "aria-label": "Close", on: { click: () => node.close() } }, "✕")),
      h("div", { class: "dialog-body" }, body), errors,
      h("footer", {}, h("button", { type: "button", on: { click: () => node.close() } }, "Cancel"), submit && button)));
  async function run(e) {
    e.preventDefault();
    button.disabled = true;
    replace(errors);
    try {
      if ((await submit({ button, errors })) !== false) node.close();
    } catch (error) {
      replace(errors, note(error.message));
    } finally {
      button.disabled = false;
    }
  }
  node.addEventListener("close", () => node.remove());
  document.body.append(node);
  node.showModal();
  return { node, errors, button, close: () => node.close() };
}

let fields = 0;
export function field(label, control, hint) {
  const id = control.id || `f${(fields += 1)}`;
  control.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("small", {}, hint));
}

export const input = (props) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props });
export const select = (options, value, props = {}) => h("select", props, options.map((o) => {
  const [id, label] = Array.isArray(o) ? o : [o, o];
  return h("option", { value: id, ...(id === value && { selected: true }) }, label);
}));

export function tabs(label, items, current) {
  return h("nav", { class: "tabs", "aria-label": label }, items.map(([id, text, path]) =>
    h("a", { href: `#/${path}`, "aria-current": id === current ? "page" : null }, text)));
}

export const stat = (label, value, hint, level = "") => h("div", { class: `stat ${level}` },
  h("span", { class: "label" }, label), h("span", { class: typeof value === "string" && value.length > 12 ? "value text" : "value" }, value), hint && h("span", { class: "hint" }, hint));

export function card(title, ...children) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...children);
}

export const confirmDelete = ({ title, name, what, run }) => {
  const typed = input({ "aria-label": `Type ${name} to confirm`, required: true });
  return dialog({
    title, action: "Delete", danger: true,
    body: [h("p", {}, what), field(`Type ${name} to confirm`, typed)],
    submit: async () => { if (typed.value !== name) throw new Error("the name does not match"); await run(); },
  });
};
