// Quotas of users, client ids and addresses.

import { get, post } from "../api.js";
import { bytes, grouped, h } from "../dom.js";
import { load } from "../states.js";
import { humane, plain } from "../units.js";
import { dialog, field, guarded, input, table, toast } from "../ui.js";

const LABELS = { producer_byte_rate: "Produce", consumer_byte_rate: "Fetch", request_percentage: "Request time", controller_mutation_rate: "Mutations", connection_creation_rate: "Connections" };
const shown = (key, value) => (key.endsWith("byte_rate") ? `${bytes(value)}/s` : key === "request_percentage" ? `${grouped(value)} %` : `${grouped(value)}/s`);
const unitOf = (key) => (key.endsWith("byte_rate") ? "bytes" : undefined);
function limitOf(key, text) {
  const value = Number(plain(text, unitOf(key)) ?? NaN);
  if (!(value >= 0)) throw new Error(`${key}: "${text}" is not a limit`);
  return value;
}
const named = (entity) => Object.entries(entity).map(([kind, name]) => [h("span", { class: "muted" }, `${kind} `), name === null ? h("em", {}, "default") : h("span", { class: "mono" }, name), " "]);

export async function mount(root) {
  const problem = h("div", {});
  let keys = [], entities = [];
  const list = table({ label: "Quotas", empty: "no quota is set", sortBy: "entity", key: (q) => JSON.stringify(q.entity), columns: [
    { id: "entity", label: "For", first: true, sort: (q) => JSON.stringify(q.entity), render: (q) => named(q.entity) },
    ...Object.keys(LABELS).map((key) => ({ id: key, label: LABELS[key], num: true, sort: (q) => q.limits[key], render: (q) => (key in q.limits ? shown(key, q.limits[key]) : h("span", { class: "muted" }, "–")) })),
    { id: "edit", label: "", render: (q) => guarded("alter_configs", h("button", { class: "ghost", "aria-label": `Change the quota of ${JSON.stringify(q.entity)}`, on: { click: () => edit(q) } }, "Change")) },
  ] });
  // The form needs the names of limits and entities first.
  const set = h("button", { class: "primary", hidden: true, on: { click: () => edit(null) } }, "Set quota");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Quotas"), guarded("alter_configs", h("div", { class: "right" }, set))), problem, list.node);

  function edit(quota) {
    const names = Object.fromEntries(entities.map((kind) => [kind, input({ placeholder: "any", value: quota && kind in quota.entity ? quota.entity[kind] ?? "<default>" : "", disabled: Boolean(quota) })]));
    const limits = Object.fromEntries(keys.map((key) => [key, input({ inputmode: "decimal", placeholder: "no limit", value: quota && key in quota.limits ? humane(String(quota.limits[key]), unitOf(key)) : "" })]));
    dialog({ title: quota ? "Change a quota" : "Set a quota", action: "Save",
      body: [h("p", { class: "muted" }, "<default> is the default of a type. An empty limit is removed."), h("div", { class: "row" }, entities.map((kind) => field(kind, names[kind]))), ...keys.map((key) => field(key, limits[key], unitOf(key) && "bytes per second, such as 1 MiB"))],
      submit: async () => {
        const entity = Object.fromEntries(entities.filter((k) => names[k].value).map((k) => [k, names[k].value === "<default>" ? null : names[k].value]));
        if (!Object.keys(entity).length) throw new Error("name a user, a client id or an address");
        const changed = keys.filter((k) => limits[k].value !== "" || (quota && k in quota.limits)).map((k) => [k, limits[k].value === "" ? null : limitOf(k, limits[k].value)]);
        await post("/api/quotas", { entity, limits: Object.fromEntries(changed) });
        toast("The quota was saved");
        await update();
      } });
  }

  const update = () => load({ problem, parts: [list], request: () => get("/api/quotas"), show: (found) => {
    ({ keys, entities } = found);
    set.hidden = false;
    list.update(found.quotas);
  } });
  return { ready: update() };
}

