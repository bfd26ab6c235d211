// Configs of a topic with their sources; a change is shown as a difference before it is saved.

import { get, post, topicPath } from "../api.js";
import { h, plural, replace } from "../dom.js";
import { dialog, input, note, pill, table, toast } from "../ui.js";

export async function mountConfigs(root, name) {
  const changes = new Map();
  let rows = [];
  const search = input({ type: "search", placeholder: "Search configs", "aria-label": "Search configs", "data-search": true, on: { input: draw } });
  const own = h("input", { type: "checkbox", id: "own", on: { change: draw } });
  const save = h("button", { class: "primary", disabled: true, on: { click: review } }, "Review changes");
  const problem = h("div", {});
  const columns = [
    { id: "name", label: "Config", first: true, sort: (c) => c.name, render: (c) => h("span", { class: "mono", title: c.documentation ?? "" }, c.name) },
    { id: "value", label: "Value", class: "config-value", render: editor },
    { id: "source", label: "Source", sort: (c) => c.source, render: (c) => (c.set ? pill(c.source, "info") : h("span", { class: "muted" }, c.source)) },
    { id: "type", label: "Type", wide: true, render: (c) => c.type },
    { id: "reset", label: "", render: (c) => c.set && !c.read_only && h("button", { class: "ghost", title: `Return ${c.name} to ${c.inherited ?? "its default"}`, on: { click: () => { changes.set(c.name, null); draw(); } } }, "Reset") },
  ];
  const list = table({ label: "Configs", columns, sortBy: "name", key: (c) => c.name, empty: "no config matches" });
  root.append(h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: "own" }, own, " set on this topic"), save), problem, list.node);

  function editor(c) {
    if (c.sensitive) return h("span", { class: "muted" }, "hidden");
    const changed = changes.has(c.name);
    const value = changed ? changes.get(c.name) ?? c.inherited ?? "" : c.value ?? "";
    if (c.read_only) return value;
    const box = input({ value, "aria-label": c.name, class: "mono", on: { change: (e) => {
      if (e.target.value === (c.value ?? "")) changes.delete(c.name); else changes.set(c.name, e.target.value);
      draw();
    } } });
    if (changed) box.style.borderColor = "var(--accent)";
    return box;
  }

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    list.update(rows.filter((c) => (!own.checked || c.set) && (!wanted || c.name.includes(wanted))));
    save.disabled = changes.size === 0;
    save.textContent = changes.size ? `Review ${plural(changes.size, "change")}` : "Review changes";
  }

  async function review() {
    const wanted = Object.fromEntries(changes);
    const checked = await post(topicPath(name, "configs"), { changes: wanted, save: false }).catch((error) => ({ error }));
    if (checked.error) { replace(problem, note(checked.error.message)); return; }
    replace(problem);
    const lines = checked.diff.map((d) => [h("div", { class: "name" }, d.name, d.note && h("span", { class: "muted" }, `  ${d.note}`)),
      h("div", { class: "minus" }, `− ${d.before ?? "not set"}`), h("div", { class: "plus" }, `+ ${d.after ?? "not set"}`)]);
    dialog({ title: `Change ${name}`, action: "Save", wide: true,
      body: checked.diff.length ? h("div", { class: "diff" }, lines) : note("These changes have no effect.", "warn"),
      submit: async () => { await post(topicPath(name, "configs"), { changes: wanted, save: true }); changes.clear(); toast("The configs were saved"); await update(); } });
  }

  async function update() {
    try {
      rows = (await get(topicPath(name, "configs"))).configs;
      draw();
    } catch (error) {
      replace(problem, note(error.message));
    }
  }
  await update();
  return {};
}
