// The cluster: live map of replicas, moves with progress, elections, configs of brokers.

import { get, post } from "../api.js";
import { bytes, grouped, h, link, plural, replace } from "../dom.js";
import { meter } from "../plots.js";
import { card, dialog, field, input, note, pill, table, tabs, toast } from "../ui.js";
import { mountLog } from "./metadata_log.js";

const STATES = { running: "good", fenced: "warn", silent: "warn", gone: "bad" };

// The metadata log has a tab where a controller's listener can be reached.
export async function mount(root, context) {
  const isLog = context.parts[0] === "log";
  const places = h("div", {});
  root.append(places);
  get("/api/metadata").then(({ available }) => {
    if (available) replace(places, tabs("Cluster", [["map", "Now", "cluster"], ["log", "Metadata log", "cluster/log"]], isLog ? "log" : "map"));
  }, () => {});
  return isLog ? mountLog(root, context) : mountMap(root, context);
}

async function mountMap(root, context) {
  const search = input({ type: "search", placeholder: "Topics on the map", "aria-label": "Topics on the map", "data-search": true, on: { input: () => update() } });
  const brokers = h("div", { class: "broker-cards" }), map = h("div", { class: "map-box" }), problem = h("div", {}), count = h("span", { class: "muted" });
  const moving = table({ label: "Moves", columns: MOVES, empty: "no partition is moving", key: (m) => `${m.topic}:${m.partition}` });
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Cluster"), h("div", { class: "right" },
    h("button", { on: { click: () => moveDialog(update) } }, "Move partition"), h("button", { on: { click: electAll } }, "Elect preferred leaders"))),
    problem, brokers, card("Moves", moving.node),
    h("section", { class: "card", "aria-label": "Map of replicas" }, h("div", { class: "page-head" }, h("h2", {}, "Map of replicas"), count, h("div", { class: "right" }, search)), legend(), map));

  async function electAll() {
    try {
      const { elected } = await post("/api/cluster/election", { partitions: null });
      toast(elected ? `${plural(elected, "leader")} elected` : "every partition has its preferred leader");
      await update();
    } catch (error) { toast(error.message, "bad"); }
  }

  async function update() {
    let found;
    try {
      found = await get("/api/cluster", { q: search.value.trim() });
      replace(problem);
    } catch (error) {
      replace(problem, note(error.message));
      return;
    }
    const states = context.session.faults ? (await get("/api/faults").catch(() => ({ brokers: {} }))).brokers : {};
    replace(brokers, found.brokers.map((b) => brokerCard(b, states[b.id], update)));
    moving.update(found.moves ?? []);
    count.textContent = found.partitions.length < found.total ? `${grouped(found.partitions.length)} of ${plural(found.total, "partition")}` : plural(found.total, "partition");
    replace(map, replicaMap(found));
  }
  const canceller = (e) => { const b = e.target.closest("[data-cancel]"); if (b) cancel(b.dataset.cancel, update); };
  moving.node.addEventListener("click", canceller);
  await update();
  return { update };
}

// In development mode only.
async function fault(broker, name, done) {
  toast(`Broker ${broker}: ${name}`);
  try { await post("/api/faults", { broker, fault: name }); } catch (error) { toast(error.message, "bad"); }
  await done();
}

const brokerCard = (b, process, done) => h("section", { class: `broker-card ${STATES[b.state]}`, "aria-label": `Broker ${b.id}` },
  h("header", {}, h("strong", {}, `Broker ${b.id}`), pill(b.state, STATES[b.state]), b.controller && pill("controller", "info")),
  h("div", { class: "mono muted" }, b.address ?? "–"), b.rack && h("div", { class: "muted" }, `rack ${b.rack}`),
  h("div", {}, `leads ${grouped(b.leads)} · holds ${grouped(b.replicas)}`, b.behind ? h("span", { class: "warn" }, ` · ${grouped(b.behind)} not in sync`) : ""),
  h("div", { class: "muted" }, bytes(b.size), b.disk_free !== null ? ` · ${bytes(b.disk_free)} free` : ""),
  b.state === "running" && h("button", { class: "ghost", on: { click: () => configsDialog(b.id) } }, "Configs"),
  process && h("div", { class: "faults", role: "group", "aria-label": `Faults of broker ${b.id}` }, process.state !== "running" && h("span", { class: "pill warn" }, process.state), process.faults.map((f) => h("button", { on: { click: () => fault(b.id, f, done) } }, f))));

const legend = () => h("div", { class: "legend" }, [["leader", "leader"], ["in", "in sync"], ["out", "not in sync"], ["none", "no replica"]].map(([c, text]) => h("span", {}, h("i", { class: `cell ${c}` }), text)));

// A block for each topic: one row a partition, one column a broker.
function replicaMap({ brokers, partitions }) {
  const ids = brokers.map((b) => b.id), blocks = new Map();
  for (const [topic, partition, leader, replicas, isr] of partitions) {
    if (!blocks.has(topic)) blocks.set(topic, h("tbody", {}));
    blocks.get(topic).append(h("tr", {}, h("th", { scope: "row" }, partition), ids.map((b) => {
      const kind = !replicas.includes(b) ? "none" : b === leader ? "leader" : isr.includes(b) ? "in" : "out";
      const text = `${topic}-${partition} on broker ${b}: ${KINDS[kind]}`;
      return h("td", {}, h("i", { class: `cell ${kind}`, title: text }), h("span", { class: "sr" }, KINDS[kind]));
    })));
  }
  return [...blocks].map(([topic, body]) => h("table", { class: "map" }, h("caption", {}, link(`topics/${encodeURIComponent(topic)}/partitions`, topic)),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "sr" }, "Partition")), ids.map((b) => h("th", { scope: "col" }, String(b))))), body));
}

const KINDS = { none: "no replica", leader: "leader", in: "in sync", out: "not in sync" };

const MOVES = [
  { id: "topic", label: "Partition", first: true, render: (m) => link(`topics/${encodeURIComponent(m.topic)}/partitions`, `${m.topic}-${m.partition}`) },
  { id: "adding", label: "Adding", render: (m) => m.adding.join(", ") || "–" },
  { id: "removing", label: "Removing", render: (m) => m.removing.join(", ") || "–" },
  { id: "progress", label: "Progress", render: (m) => [meter(m.progress, `${Math.round(m.progress * 100)} % copied`), `${Math.round(m.progress * 100)} %`] },
  { id: "size", label: "Size", num: true, wide: true, render: (m) => bytes(m.size) },
  { id: "reason", label: "Reason", wide: true, render: (m) => m.reason || "requested" },
  { id: "cancel", label: "", render: (m) => h("button", { class: "ghost", "data-cancel": JSON.stringify([m.topic, m.partition]) }, "Cancel") },
];

async function cancel(text, done) {
  const [topic, partition] = JSON.parse(text);
  try {
    await post("/api/cluster/moves", [{ topic, partition, replicas: null }]);
    toast(`The move of ${topic}-${partition} was cancelled`);
    await done();
  } catch (error) { toast(error.message, "bad"); }
}

function moveDialog(done) {
  const topic = input({ required: true, autofocus: true }), partition = input({ required: true, inputmode: "numeric", pattern: "\\d+", value: "0" });
  const replicas = input({ required: true, pattern: "\\d+(\\s*,\\s*\\d+)*", placeholder: "2, 3, 1" });
  dialog({ title: "Move a partition", action: "Move", body: [h("div", { class: "row" }, field("Topic", topic), field("Partition", partition)), field("Brokers, the preferred leader first", replicas)],
    submit: async () => {
      await post("/api/cluster/moves", [{ topic: topic.value, partition: Number(partition.value), replicas: replicas.value.split(",").map((t) => Number(t.trim())) }]);
      toast(`${topic.value}-${partition.value} moves`);
      await done();
    } });
}

async function configsDialog(broker) {
  const list = table({ label: `Configs of broker ${broker}`, sortBy: "name", columns: [
    { id: "name", label: "Config", first: true, sort: (c) => c.name, render: (c) => h("span", { class: "mono", title: c.documentation ?? "" }, c.name) },
    { id: "value", label: "Value", render: (c) => h("span", { class: "mono" }, c.sensitive ? "hidden" : c.value ?? "–") },
    { id: "source", label: "Source", sort: (c) => c.source, render: (c) => pill(c.source, c.set ? "info" : "") } ] });
  list.node.style.maxHeight = "60vh";
  const search = input({ type: "search", placeholder: "Search configs", "aria-label": "Search configs of the broker", on: { input: () => list.update(rows.filter((c) => c.name.includes(search.value.trim()))) } });
  let rows = [];
  const shown = dialog({ title: `Broker ${broker}`, wide: true, body: [search, list.node] });
  try { rows = (await get(`/api/brokers/${broker}/configs`)).configs; list.update(rows); } catch (error) { replace(shown.errors, note(error.message)); }
}
