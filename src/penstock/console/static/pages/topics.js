// The list of topics, and the page of one topic with its tabs.

import { get, params, post, remove, topicPath } from "../api.js";
import { bytes, grouped, h, link, named, plural, rate, replace, short } from "../dom.js";
import { chart } from "../plots.js";
import { exact, known, load, shownLag } from "../states.js";
import { card, confirmDelete, dialog, field, guarded, input, note, pill, select, stat, table, tabs, toast } from "../ui.js";
import { movePartition } from "./reassignment.js";
import { mountConfigs } from "./topic_configs.js";
import { mountMessages } from "./topic_messages.js";
import { mountSchemas } from "./topic_schemas.js";

export async function mount(root, context) {
  return context.parts.length ? mountTopic(root, context) : mountList(root, context);
}

// -- list

const NO_LEADER = { state: "unknown", reason: "the broker that leads it has not said it" };
const NO_COMMIT = { state: "unknown", reason: "no group has committed an offset" };
const MEASURING = { state: "loading", reason: "" };
const quiet = (n, show) => (n === null ? known(null, MEASURING) : n ? show(n) : h("span", { class: "muted" }, "0"));
// The forms that columns in console/views/topics.py have: how a value is shown, and what rows are sorted by if not by the value.
const FORMS = {
  topic: { first: true, render: (name) => link(`topics/${encodeURIComponent(name)}`, named(name)) },
  state: { sort: ([offline, lacking]) => offline * 1e6 + lacking, render: state },
  count: { num: true, render: grouped },
  rate: { num: true, render: (n) => quiet(n, rate) },
  byte_rate: { num: true, render: (n) => quiet(n, (some) => `${bytes(some)}/s`) },
  records: { num: true, render: (n) => exact(n, NO_LEADER, short) },
  bytes: { num: true, render: (n) => exact(n, NO_LEADER, bytes) },
  lag: { num: true, sort: (lag) => lag && lag[0], render: (lag) => shownLag({ lag: lag && lag[0], lag_exact: lag && lag[1], gap: NO_COMMIT }) },
};

function listColumn({ id, label, form, wide }, i) {
  const { sort = (value) => value, render, ...looks } = FORMS[form];
  return { id, label, wide, ...looks, sort: (row) => sort(row[i]), render: (row) => render(row[i]) };
}

function state([offline, lacking]) {
  if (offline) return pill(`${grouped(offline)} without leader`, "bad");
  return lacking ? pill(`${grouped(lacking)} under-replicated`, "warn") : pill("ok", "good");
}

async function mountList(root, { query }) {
  const search = input({ type: "search", placeholder: "Search topics", "aria-label": "Search topics", "data-search": true, value: query.get("q") ?? "", on: { input: filter } });
  const internal = h("input", { type: "checkbox", id: "internal", checked: query.get("internal") === "1", on: { change: filter } });
  const count = h("span", { class: "muted", role: "status" });
  const at = {};
  const list = table({ label: "Topics", columns: [], sortBy: "name", empty: "no topic matches", key: (r) => r[at.name],
    onOpen: (row) => { location.hash = `#/topics/${encodeURIComponent(row[at.name])}`; } });
  list.node.classList.add("tall");
  const problem = h("div", {});
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Topics"), count, h("div", { class: "right" },
    guarded("create", h("button", { class: "primary", on: { click: createTopic } }, "Create topic")))),
    h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: "internal" }, internal, " internal topics")), problem, list.node);
  let rows = null, gap = null;
  function filter() {
    if (!rows) return;
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((r) => (internal.checked || !r[at.internal]) && (!wanted || r[at.name].toLowerCase().includes(wanted)));
    const all = `${gap ? "at least " : ""}${plural(rows.length, "topic")}`;
    count.textContent = gap && !rows.length ? "" : found.length === rows.length ? all : `${grouped(found.length)} of ${all}`;
    list.update(found, gap);
  }
  const update = () => load({ problem, parts: [list], request: () => get("/api/topics"), show: (found) => {
    if (!rows) {
      found.columns.forEach(({ id }, i) => { at[id] = i; });
      list.have(found.columns.map((each, i) => each.label && listColumn(each, i)).filter(Boolean));
    }
    ({ rows, gap } = found);
    filter();
  } });
  return { update, ready: update() };
}

function createTopic() {
  const name = input({ required: true, pattern: "[A-Za-z0-9._\\-]{1,249}", autofocus: true });
  const partitions = input({ type: "number", min: 1, max: 100000, placeholder: "default" });
  const replicas = input({ type: "number", min: 1, max: 32767, placeholder: "default" });
  const configs = h("textarea", { rows: 4, placeholder: "retention.ms=86400000\ncleanup.policy=compact" });
  dialog({
    title: "Create topic", action: "Create",
    body: [field("Name", name, "letters, digits, '.', '_' and '-'"), h("div", { class: "row" }, field("Partitions", partitions), field("Replicas", replicas)),
      field("Configs, one name=value a line", configs)],
    submit: async () => {
      const pairs = configs.value.split("\n").map((l) => l.trim()).filter(Boolean).map((l) => {
        const i = l.indexOf("=");
        if (i < 1) throw new Error(`"${l}" is not name=value`);
        return [l.slice(0, i).trim(), l.slice(i + 1).trim()];
      });
      await post("/api/topics", { name: name.value, partitions: Number(partitions.value || -1), replicas: Number(replicas.value || -1), configs: Object.fromEntries(pairs) });
      toast(`Topic ${name.value} was created`);
      location.hash = `#/topics/${encodeURIComponent(name.value)}`;
    },
  });
}

// -- one topic

async function mountTopic(root, context) {
  const [name, tab = "messages"] = context.parts;
  const base = `topics/${encodeURIComponent(name)}`;
  const body = h("div", { class: "tab-body" }), actions = h("div", { class: "right", hidden: true });
  const known = get(topicPath(name, "exists")), own = known.then((found) => found.rights, () => []);
  replace(actions, guarded("alter", h("button", { on: { click: () => morePartitions(name) } }, "Add partitions"), own), guarded("delete", h("button", { on: { click: () => cutTopic(name) } }, "Delete records"), own),
    guarded("delete", h("button", { on: { click: () => deleteTopic(name) } }, "Delete"), own));
  const bar = tabs("Topic", [["messages", "Messages", `${base}/messages`], ["partitions", "Partitions", `${base}/partitions`], ["configs", "Configs", `${base}/configs`], ["groups", "Groups", `${base}/groups`], ...(context.session.registry ? [["schemas", "Schemas", `${base}/schemas`]] : [])], tab);
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("topics", "Topics"), " / "), h("h1", { class: "mono" }, name), actions), bar, body);
  // A topic that does not exist has nothing to read, change or delete.
  const missing = (error) => {
    if (error.status !== 404) return;
    actions.hidden = bar.hidden = true;
    replace(body, note(`There is no topic ${name}, or this user may not see it.`, "warn"));
  };
  known.then(() => { actions.hidden = false; }, missing);
  const views = { messages: mountMessages, partitions: mountPartitions, configs: mountConfigs, groups: mountGroups, schemas: mountSchemas };
  return (views[tab] ?? mountMessages)(body, name, { ...context, rights: own });
}

async function morePartitions(name) {
  const page = await get(topicPath(name));
  const now = page.partitions.length;
  const total = input({ type: "number", min: now + 1, max: 100000, value: now + 1, required: true });
  dialog({
    title: `Add partitions to ${name}`, action: "Add",
    body: [field("Partitions in total", total, `${now} now`), note("Messages with a key may go to another partition afterwards: their order across the change is lost. Partitions cannot be removed again.", "warn")],
    submit: async () => { await post(topicPath(name, "partitions"), { total: Number(total.value) }); toast(`${name} has ${plural(Number(total.value), "partition")}`); location.hash = `#/topics/${encodeURIComponent(name)}/partitions`; },
  });
}

// Deletes the records before an offset, or all of them, of one partition or of all.
async function cutTopic(name) {
  const { partitions } = await get(topicPath(name));
  const partition = select([["", "All partitions"], ...partitions.map((p) => String(p.partition))], "");
  const offset = input({ inputmode: "numeric", pattern: "\\d{1,19}", placeholder: "the end: all records" });
  const typed = input({ required: true });
  dialog({
    title: `Delete records of ${name}`, action: "Delete records", danger: true,
    body: [note("Records before the offset are deleted from all replicas. This cannot be undone. The topic stays.", "warn"), h("div", { class: "row" }, field("Of partition", partition), field("Before offset", offset)), field(`Type ${name} to confirm`, typed)],
    submit: async () => {
      if (typed.value !== name) throw new Error("the name does not match");
      const chosen = partitions.filter((p) => partition.value === "" || String(p.partition) === partition.value);
      const unknown = chosen.filter((p) => !offset.value && p.end === null);
      if (unknown.length) throw new Error(`the end of partition ${unknown[0].partition} is not known now: try again`);
      await post(topicPath(name, "cut"), { before: Object.fromEntries(chosen.map((p) => [p.partition, offset.value || p.end])) });
      toast(`Records of ${name} were deleted`);
      window.dispatchEvent(new Event("hashchange"));
    },
  });
}

const deleteTopic = (name) => confirmDelete({
  title: `Delete ${name}`, name, what: "All messages of the topic are deleted. This cannot be undone.",
  run: async () => { await remove(topicPath(name)); toast(`Topic ${name} was deleted`); location.hash = "#/topics"; },
});

const replicaChips = (p) => p.replicas.map((b) => h("span", {
  class: `replica ${b === p.leader ? "leader" : p.isr.includes(b) ? "" : "out"}`,
  title: b === p.leader ? `broker ${b} leads` : p.isr.includes(b) ? `broker ${b} is in sync` : `broker ${b} is not in sync`,
}, b));
const PARTITIONS = [
  { id: "partition", label: "Partition", first: true, sort: (p) => p.partition, render: (p) => p.partition },
  { id: "replicas", label: "Replicas", render: replicaChips },
  { id: "leader", label: "Leader", sort: (p) => p.leader, render: (p) => (p.leader === null ? pill("none", "bad") : [`${p.leader} `, p.preferred ? "" : h("span", { class: "muted", title: "not the first replica" }, "not preferred")]) },
  { id: "epoch", label: "Epoch", num: true, wide: true, sort: (p) => p.epoch, render: (p) => grouped(p.epoch) },
  { id: "start", label: "First offset", num: true, render: (p) => exact(p.start, NO_LEADER, grouped) },
  { id: "end", label: "Next offset", num: true, render: (p) => exact(p.end, NO_LEADER, grouped) },
  { id: "size", label: "Size", num: true, sort: (p) => p.size, render: (p) => exact(p.size, NO_LEADER, bytes) },
];
// Of topics with tiered storage.
const TIERS = [
  { id: "local_start", label: "On disk from", num: true, render: (p) => exact(p.local_start, NO_LEADER, grouped) },
  { id: "copied", label: "Archived to", num: true, render: (p) => grouped(p.copied) },
];

async function mountPartitions(root, name) {
  const stats = h("div", { class: "stats" });
  const plot = chart({ label: "Records in per second", format: (n) => rate(n, "") });
  const move = (p) => guarded("alter", h("button", { class: "ghost", type: "button", "aria-label": `Move partition ${p.partition}`, on: { click: () => movePartition(name, p, update).catch((error) => toast(error.message, "bad")) } }, "Move"));
  const listOf = (tiers) => table({ label: "Partitions", columns: [...PARTITIONS, ...tiers, { id: "move", label: "", render: move }], sortBy: "partition", key: (p) => p.partition });
  let list = listOf([]), isTiered = false;
  const problem = h("div", {}), plan = h("p", { hidden: true }, link(`cluster/reassignment?${params({ topics: name })}`, "Plan a reassignment of this topic"));
  root.append(problem, stats, h("div", { class: "card" }, plot.node), list.node, plan);
  const update = () => load({ problem, parts: [list], request: () => get(topicPath(name)), show: (t) => {
    replace(stats, stat("Partitions", grouped(t.partitions.length)), stat("In", exact(t.records_per_s, MEASURING, rate), exact(t.bytes_per_s, MEASURING, (n) => `${bytes(n)}/s`)), stat("Size", exact(t.size, NO_LEADER, bytes), "leaders' logs"), stat("Topic id", h("span", { class: "mono" }, t.id)));
    plot.update(t.rate);
    plan.hidden = false;
    if (t.tiered && !isTiered) {
      const tiered = listOf(TIERS);
      list.node.replaceWith(tiered.node);
      [list, isTiered] = [tiered, true];
    }
    list.update(t.partitions);
  } });
  return { update, ready: update() };
}

async function mountGroups(root, name) {
  const list = table({ label: "Groups of this topic", empty: "no group has committed an offset in this topic", sortBy: "lag", descending: true, columns: [
    { id: "group", label: "Group", first: true, sort: (g) => g.group, render: (g) => link(`groups/${encodeURIComponent(g.group)}`, g.group) },
    { id: "state", label: "State", sort: (g) => g.state, render: (g) => g.state },
    { id: "kind", label: "Type", sort: (g) => g.kind, render: (g) => g.kind },
    { id: "lag", label: "Lag here", num: true, sort: (g) => g.lag, render: shownLag },
  ] });
  const problem = h("div", {});
  root.append(problem, card("Groups with committed offsets", list.node));
  const update = () => load({ problem, parts: [list], request: () => get(topicPath(name)), show: (t) => list.update(t.groups, t.gap) });
  return { update, ready: update() };
}
