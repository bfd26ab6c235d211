// Quotas of users, client ids and addresses.

import { get, post } from "../api.js";
import { bytes, grouped, h, replace } from "../dom.js";
import { dialog, field, input, note, table, toast } from "../ui.js";

const LABELS = { producer_byte_rate: "Produce", consumer_byte_rate: "Fetch", request_percentage: "Request time", controller_mutation_rate: "Mutations", connection_creation_rate: "Connections" };
const shown = (key, value) => (key.endsWith("byte_rate") ? `${bytes(value)}/s` : key === "request_percentage" ? `${grouped(value)} %` : `${grouped(value)}/s`);
const named = (entity) => Object.entries(entity).map(([kind, name]) => [h("span", { class: "muted" }, `${kind} `), name === null ? h("em", {}, "default") : h("span", { class: "mono" }, name), " "]);

export async function mount(root) {
  const problem = h("div", {});
  let keys = [], entities = [];
  const list = table({ label: "Quotas", empty: "no quota is set", sortBy: "entity", key: (q) => JSON.stringify(q.entity), columns: [
    { id: "entity", label: "For", first: true, sort: (q) => JSON.stringify(q.entity), render: (q) => named(q.entity) },
    ...Object.keys(LABELS).map((key) => ({ id: key, label: LABELS[key], num: true, sort: (q) => q.limits[key], render: (q) => (key in q.limits ? shown(key, q.limits[key]) : h("span", { class: "muted" }, "–")) })),
    { id: "edit", label: "", render: (q) => h("button", { class: "ghost", "aria-label": `Change the quota of ${JSON.stringify(q.entity)}`, on: { click: () => edit(q) } }, "Change") },
  ] });
  // The form needs the names of limits and entities first.
  const set = h("button", { class: "primary", disabled: true, on: { click: () => edit(null) } }, "Set quota");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Quotas"), h("div", { class: "right" }, set)), problem, list.node);

  function edit(quota) {
    const names = Object.fromEntries(entities.map((kind) => [kind, input({ placeholder: "any", value: quota && kind in quota.entity ? quota.entity[kind] ?? "<default>" : "", disabled: Boolean(quota) })]));
    const limits = Object.fromEntries(keys.map((key) => [key, input({ type: "number", min: 0, step: "any", placeholder: "no limit", value: quota?.limits[key] ?? "" })]));
    dialog({ title: quota ? "Change a quota" : "Set a quota", action: "Save",
      body: [h("p", { class: "muted" }, "<default> is the default of a type. An empty limit is removed."), h("div", { class: "row" }, entities.map((kind) => field(kind, names[kind]))), ...keys.map((key) => field(key, limits[key]))],
      submit: async () => {
        const entity = Object.fromEntries(entities.filter((k) => names[k].value).map((k) => [k, names[k].value === "<default>" ? null : names[k].value]));
        if (!Object.keys(entity).length) throw new Error("name a user, a client id or an address");
        const changed = keys.filter((k) => limits[k].value !== "" || (quota && k in quota.limits)).map((k) => [k, limits[k].value === "" ? null : Number(limits[k].value)]);
        await post("/api/quotas", { entity, limits: Object.fromEntries(changed) });
        toast("The quota was saved");
        await update();
      } });
  }

  async function update() {
    try {
      const found = await get("/api/quotas");
      ({ keys, entities } = found);
      set.disabled = false;
      replace(problem);
      list.update(found.quotas);
    } catch (error) { replace(problem, note(error.message)); }
  }
  await update();
  return {};
}

