// The list of topics, and the page of one topic with its tabs.

import { get, post, remove, topicPath } from "../api.js";
import { bytes, grouped, h, link, plural, rate, replace, short } from "../dom.js";
import { chart } from "../plots.js";
import { card, confirmDelete, dialog, field, input, note, pill, stat, table, tabs, toast } from "../ui.js";
import { mountConfigs } from "./topic_configs.js";
import { mountMessages } from "./topic_messages.js";

export async function mount(root, context) {
  return context.parts.length ? mountTopic(root, context) : mountList(root, context);
}

// -- list

const F = {};
const at = (name) => (row) => row[F[name]];
const LIST = [
  { id: "name", label: "Topic", first: true, sort: (r) => at("name")(r), render: (r) => link(`topics/${encodeURIComponent(at("name")(r))}`, at("name")(r)) },
  { id: "state", label: "State", sort: (r) => at("offline")(r) * 1e6 + at("under_replicated")(r), render: state },
  { id: "partitions", label: "Partitions", num: true, sort: (r) => at("partitions")(r), render: (r) => grouped(at("partitions")(r)) },
  { id: "replicas", label: "Replicas", num: true, wide: true, sort: (r) => at("replicas")(r), render: (r) => grouped(at("replicas")(r)) },
  { id: "records_per_s", label: "Records in", num: true, sort: (r) => at("records_per_s")(r), render: (r) => quiet(at("records_per_s")(r), rate) },
  { id: "bytes_per_s", label: "Bytes in", num: true, wide: true, sort: (r) => at("bytes_per_s")(r), render: (r) => quiet(at("bytes_per_s")(r), (n) => `${bytes(n)}/s`) },
  { id: "messages", label: "End offsets", num: true, wide: true, sort: (r) => at("messages")(r), render: (r) => short(at("messages")(r)) },
  { id: "size", label: "Size", num: true, sort: (r) => at("size")(r), render: (r) => bytes(at("size")(r)) },
  { id: "lag", label: "Lag", num: true, sort: (r) => at("lag")(r), render: (r) => (at("lag")(r) === null ? h("span", { class: "muted", title: "no group has committed an offset" }, "–") : short(at("lag")(r))) },
];
const quiet = (n, show) => (n ? show(n) : h("span", { class: "muted" }, "0"));

function state(row) {
  const offline = at("offline")(row), lacking = at("under_replicated")(row);
  if (offline) return pill(`${grouped(offline)} without leader`, "bad");
  return lacking ? pill(`${grouped(lacking)} under-replicated`, "warn") : pill("ok", "good");
}

async function mountList(root, { query }) {
  const search = input({ type: "search", placeholder: "Search topics", "aria-label": "Search topics", "data-search": true, value: query.get("q") ?? "", on: { input: filter } });
  const internal = h("input", { type: "checkbox", id: "internal", checked: query.get("internal") === "1", on: { change: filter } });
  const count = h("span", { class: "muted", role: "status" });
  const list = table({ label: "Topics", columns: LIST, sortBy: "name", empty: "no topic matches", key: (r) => r[F.name],
    onOpen: (row) => { location.hash = `#/topics/${encodeURIComponent(row[F.name])}`; } });
  list.node.classList.add("tall");
  const problem = h("div", {});
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Topics"), count, h("div", { class: "right" },
    h("button", { class: "primary", on: { click: createTopic } }, "Create topic"))),
    h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: "internal" }, internal, " internal topics")), problem, list.node);
  let rows = [];
  function filter() {
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((r) => (internal.checked || !r[F.internal]) && (!wanted || r[F.name].toLowerCase().includes(wanted)));
    count.textContent = found.length === rows.length ? plural(rows.length, "topic") : `${grouped(found.length)} of ${plural(rows.length, "topic")}`;
    list.update(found);
  }
  async function update() {
    try {
      const found = await get("/api/topics");
      found.fields.forEach((name, i) => { F[name] = i; });
      rows = found.rows;
      replace(problem);
      filter();
    } catch (error) {
      replace(problem, note(error.message));
    }
  }
  await update();
  return { update };
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
  const body = h("div", { class: "tab-body" });
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("topics", "Topics"), " / "), h("h1", { class: "mono" }, name), h("div", { class: "right" },
      h("button", { on: { click: () => morePartitions(name) } }, "Add partitions"),
      h("button", { on: { click: () => deleteTopic(name) } }, "Delete"))),
    tabs("Topic", [["messages", "Messages", `${base}/messages`], ["partitions", "Partitions", `${base}/partitions`], ["configs", "Configs", `${base}/configs`], ["groups", "Groups", `${base}/groups`]], tab), body);
  const views = { messages: mountMessages, partitions: mountPartitions, configs: mountConfigs, groups: mountGroups };
  return (views[tab] ?? mountMessages)(body, name, context);
}

async function morePartitions(name) {
  const page = await get(topicPath(name));
  const now = page.partitions.length;
  const total = input({ type: "number", min: now + 1, max: 100000, value: now + 1, required: true });
  dialog({
    title: `Add partitions to ${name}`, action: "Add",
    body: [field("Partitions in total", total, `${now} now`), note("Messages with a key may go to another partition afterwards: their order across the change is lost. Partitions cannot be removed again.", "warn")],
    submit: async () => { await post(topicPath(name, "partitions"), { total: Number(total.value) }); toast(`${name} has ${total.value} partitions`); location.hash = `#/topics/${encodeURIComponent(name)}/partitions`; },
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
  { id: "start", label: "First offset", num: true, render: (p) => grouped(p.start) },
  { id: "end", label: "Next offset", num: true, render: (p) => grouped(p.end) },
  { id: "size", label: "Size", num: true, sort: (p) => p.size, render: (p) => bytes(p.size) },
];

async function mountPartitions(root, name) {
  const stats = h("div", { class: "stats" });
  const plot = chart({ label: "Records in per second", format: (n) => rate(n, "") });
  const list = table({ label: "Partitions", columns: PARTITIONS, sortBy: "partition", key: (p) => p.partition });
  const problem = h("div", {});
  root.append(problem, stats, h("div", { class: "card" }, plot.node), list.node);
  async function update() {
    try {
      const t = await get(topicPath(name));
      replace(problem);
      replace(stats, stat("Partitions", grouped(t.partitions.length)), stat("In", rate(t.records_per_s), `${bytes(t.bytes_per_s)}/s`), stat("Size", bytes(t.size), "leaders' logs"), stat("Topic id", h("span", { class: "mono" }, t.id)));
      plot.update(t.rate);
      list.update(t.partitions);
    } catch (error) {
      replace(problem, note(error.message));
    }
  }
  await update();
  return { update };
}

async function mountGroups(root, name) {
  const list = table({ label: "Groups of this topic", empty: "no group has committed an offset in this topic", sortBy: "lag", descending: true, columns: [
    { id: "group", label: "Group", first: true, sort: (g) => g.group, render: (g) => link(`groups/${encodeURIComponent(g.group)}`, g.group) },
    { id: "state", label: "State", sort: (g) => g.state, render: (g) => g.state },
    { id: "kind", label: "Type", sort: (g) => g.kind, render: (g) => g.kind },
    { id: "lag", label: "Lag here", num: true, sort: (g) => g.lag, render: (g) => short(g.lag) },
  ] });
  root.append(card("Groups with committed offsets", list.node));
  const update = async () => list.update((await get(topicPath(name))).groups);
  await update();
  return { update };
}
