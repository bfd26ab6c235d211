// Configs of a topic or broker with their sources, each with a control for its type and its documentation.
// A change is shown as a difference before it is saved.

import { get, post, rights, topicPath } from "../api.js";
import { h, plural, replace } from "../dom.js";
import { load } from "../states.js";
import { humane, plain } from "../units.js";
import { dialog, guarded, input, note, pill, select, table, toast } from "../ui.js";

export const mountConfigs = (root, name, context) => configEditor(root, { path: topicPath(name, "configs"), title: name, own: "set on this topic", given: context.rights });

// Without the right to change configs, their values are text.
export function configEditor(root, { path, title, own: ownLabel, given = rights() }) {
  const changes = new Map();
  let rows = null, mayChange = false;
  const search = input({ type: "search", placeholder: "Search configs", "aria-label": "Search configs", "data-search": true, on: { input: draw } });
  const own = h("input", { type: "checkbox", id: `own-${title}`, on: { change: draw } });
  const save = h("button", { class: "primary", type: "button", disabled: true, on: { click: review } }, "Review changes");
  guarded("alter_configs", save, given);
  const problem = h("div", {});
  const columns = [
    { id: "name", label: "Config", first: true, class: "config-name", sort: (c) => c.name, render: (c) => [h("div", { class: "mono" }, c.name), c.documentation && h("small", {}, c.documentation)] },
    { id: "value", label: "Value", class: "config-value", render: editor },
    { id: "source", label: "Source", wide: true, sort: (c) => c.source, render: (c) => (c.set ? pill(c.source, "info") : h("span", { class: "muted" }, c.source)) },
    { id: "reset", label: "", render: (c) => c.set && !c.read_only && mayChange && h("button", { class: "ghost", type: "button", title: `Return ${c.name} to ${c.inherited ?? "its default"}`, on: { click: () => { changes.set(c.name, null); draw(); } } }, "Reset") },
  ];
  const list = table({ label: "Configs", columns, sortBy: "name", key: (c) => c.name, empty: "no config matches", whole: true });
  list.node.classList.add("configs");
  root.append(h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: own.id }, own, ` ${ownLabel}`), save), problem, list.node);

  function change(c, value) {
    if (value === (c.value ?? "")) changes.delete(c.name); else changes.set(c.name, value);
    mark();
  }

  function editor(c) {
    if (c.sensitive) return h("span", { class: "muted" }, "hidden");
    const value = changes.has(c.name) ? changes.get(c.name) ?? c.inherited ?? "" : c.value ?? "";
    if (c.read_only || !mayChange) return h("span", { class: "mono", title: value }, humane(value, c.unit));
    return control(c, value, (next) => change(c, next));
  }

  function mark() {
    save.disabled = changes.size === 0;
    save.textContent = changes.size ? `Review ${plural(changes.size, "change")}` : "Review changes";
  }

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    if (rows) list.update(rows.filter((c) => (!own.checked || c.set) && (!wanted || c.name.includes(wanted))));
    mark();
  }

  async function review() {
    const wanted = Object.fromEntries(changes);
    const checked = await post(path, { changes: wanted, save: false }).catch((error) => ({ error }));
    if (checked.error) { replace(problem, note(checked.error.message)); return; }
    replace(problem);
    const units = new Map(rows.map((c) => [c.name, c.unit]));
    const shown = (d, value) => (value === null || value === undefined ? "not set" : humane(value, units.get(d.name)) === value ? value : `${value} (${humane(value, units.get(d.name))})`);
    const lines = checked.diff.map((d) => [h("div", { class: "name-line" }, d.name, d.note && h("span", { class: "muted" }, `  ${d.note}`)),
      h("div", { class: "minus" }, `− ${shown(d, d.before)}`), h("div", { class: "plus" }, `+ ${shown(d, d.after)}`)]);
    dialog({ title: `Change ${title}`, action: "Save", wide: true,
      body: checked.diff.length ? h("div", { class: "diff" }, lines) : note("These changes have no effect.", "warn"),
      submit: async () => { await post(path, { changes: wanted, save: true }); changes.clear(); toast("The configs were saved"); await update(); } });
  }

  const update = () => load({ problem, parts: [list], request: () => get(path), show: (found) => { rows = found.configs; draw(); } });
  Promise.resolve(given).then((found) => { mayChange = !found || found.includes("alter_configs"); draw(); });
  return { ready: update() };
}

// The control for the type of a config: a switch, a list, checkboxes, or text in human units.
function control(c, value, change) {
  if (c.type === "boolean") return h("input", { type: "checkbox", role: "switch", class: "switch", "aria-label": c.name, checked: value === "true", on: { change: (e) => change(String(e.target.checked)) } });
  if (c.values && c.type === "list") {
    const chosen = new Set(value.split(",").map((v) => v.trim()).filter(Boolean));
    return h("span", { role: "group", "aria-label": c.name }, c.values.map((v) => h("label", { class: "choice" }, h("input", { type: "checkbox", checked: chosen.has(v), on: { change: (e) => { if (e.target.checked) chosen.add(v); else chosen.delete(v); change([...chosen].join(",")); } } }), ` ${v}`)));
  }
  if (c.values) return select(c.values.includes(value) ? c.values : [value, ...c.values], value, { "aria-label": c.name, on: { change: (e) => change(e.target.value) } });
  const box = input({ value: humane(value, c.unit), title: value, "aria-label": c.name, class: "mono", on: { change: (e) => {
    const next = plain(e.target.value, c.unit);
    e.target.setCustomValidity(next === null ? "write a number with a unit, such as 7 d, 30 s or 512 MiB" : "");
    if (next === null) { e.target.reportValidity(); return; }
    e.target.title = next;
    change(next);
  } } });
  return box;
}
