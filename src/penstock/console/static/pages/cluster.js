// The cluster: live map of replicas, moves with progress, elections, configs of brokers.

import { get, post } from "../api.js";
import { bytes, grouped, h, link, named, plural, replace } from "../dom.js";
import { known, load } from "../states.js";
import { card, dialog, field, guarded, input, pill, table, tabs, toast } from "../ui.js";
import { mountLog } from "./metadata_log.js";
import { electAll, mountReassignment, movesTable } from "./reassignment.js";
import { configEditor } from "./topic_configs.js";

const STATES = { running: "good", fenced: "warn", silent: "warn", gone: "bad" };

// The metadata log has a tab where a controller's listener can be reached.
export async function mount(root, context) {
  const views = { log: mountLog, reassignment: mountReassignment };
  const tab = context.parts[0] in views ? context.parts[0] : "map";
  const items = [["map", "Now", "cluster"], ["reassignment", "Reassignment", "cluster/reassignment"]];
  const places = h("div", {}, tabs("Cluster", items, tab));
  root.append(places);
  get("/api/metadata").then(({ available }) => {
    if (available) replace(places, tabs("Cluster", [...items, ["log", "Metadata log", "cluster/log"]], tab));
  }, () => {});
  return (views[tab] ?? mountMap)(root, context);
}

async function mountMap(root, context) {
  const search = input({ type: "search", placeholder: "Topics on the map", "aria-label": "Topics on the map", "data-search": true, on: { input: () => update() } });
  const brokers = h("div", { class: "broker-cards" }), map = replicaMap(), problem = h("div", {}), count = h("span", { class: "muted" });
  const internal = h("input", { type: "checkbox", id: "map-internal", on: { change: () => update() } }), folded = h("span", {}, " internal topics");
  const moving = movesTable(() => update());
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Cluster"), h("div", { class: "right" },
    link("cluster/reassignment", "Balance and plans"), guarded("alter", h("button", { on: { click: () => moveDialog(update) } }, "Move partition")), guarded("alter", h("button", { on: { click: () => electAll(() => update()) } }, "Elect preferred leaders")))),
    problem, brokers, card("Moves", moving.node),
    h("section", { class: "card", "aria-label": "Map of replicas" }, h("div", { class: "page-head" }, h("h2", {}, "Map of replicas"), count, h("div", { class: "right" }, h("label", { for: "map-internal" }, internal, folded), search)), legend(), map.node));

  const moves = () => load({ problem: h("div", {}), parts: [moving], request: () => get("/api/cluster/moves"), show: (found) => moving.update(found.moves, found.moves_gap) });
  const update = () => Promise.all([moves(), load({ problem, parts: [map], request: () => get("/api/cluster", { q: search.value.trim(), internal: internal.checked ? 1 : "" }), show })]);
  async function show(found) {
    const states = context.session.faults ? (await get("/api/faults").catch(() => ({ brokers: {} }))).brokers : {};
    replace(brokers, found.brokers.map((b) => brokerCard(b, states[b.id], update)));
    const all = found.gap && !found.total ? "" : found.partitions.length < found.total ? `${grouped(found.partitions.length)} of ${plural(found.total, "partition")}` : plural(found.total, "partition");
    count.textContent = found.problems ? `${all}, ${grouped(found.problems)} with a problem first` : all;
    folded.textContent = internal.checked || !found.folded ? " internal topics" : ` ${plural(found.folded, "internal topic")}`;
    map.update(found);
  }
  return { update, ready: update() };
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
  h("div", {}, "leads ", known(b.leads, b.gap, grouped), " · holds ", known(b.replicas, b.gap, grouped), b.behind ? h("span", { class: "warn" }, ` · ${grouped(b.behind)} not in sync`) : ""),
  h("div", { class: "muted" }, b.size === null ? "" : bytes(b.size), b.size === null ? "size not known" : "", b.disk_free !== null ? ` · ${bytes(b.disk_free)} free` : ""),
  b.state === "running" && guarded("describe_configs", h("button", { class: "ghost", on: { click: () => configsDialog(b.id) } }, "Configs")),
  process && h("div", { class: "faults", role: "group", "aria-label": `Faults of broker ${b.id}` }, process.state !== "running" && h("span", { class: "pill warn" }, process.state), process.faults.map((f) => h("button", { on: { click: () => fault(b.id, f, done) } }, f))));

const legend = () => h("div", { class: "legend" }, [["leader", "leader"], ["in", "in sync"], ["out", "not in sync"], ["none", "no replica"]].map(([c, text]) => h("span", {}, h("i", { class: `cell ${c}` }), text)));

// One row a partition, one column a broker: a list that draws its visible rows only, for any number of topics.
function replicaMap() {
  const node = h("div", { class: "map-box" });
  let list = null, shown = "";
  function columns(ids) {
    const cell = (b) => ([topic, partition, leader, replicas, isr]) => {
      const kind = !replicas.includes(b) ? "none" : b === leader ? "leader" : isr.includes(b) ? "in" : "out";
      return [h("i", { class: `cell ${kind}`, title: `${topic}-${partition} on broker ${b}: ${KINDS[kind]}` }), h("span", { class: "sr" }, KINDS[kind])];
    };
    return [
      { id: "topic", label: "Topic", first: true, sort: ([t, p]) => `${t} ${p}`, render: ([t]) => link(`topics/${encodeURIComponent(t)}/partitions`, named(t)) },
      { id: "partition", label: "Partition", num: true, render: ([, p]) => p },
      ...ids.map((b) => ({ id: `broker-${b}`, label: h("span", {}, h("span", { class: "wide" }, "Broker "), String(b)), class: "cell-box", render: cell(b) })),
    ];
  }
  function build(ids) {
    list = table({ label: "Map of replicas", columns: columns(ids), empty: "no topic matches", key: ([t, p]) => `${t}:${p}` });
    list.node.classList.add("map");
    replace(node, list.node);
  }
  build([]);
  return {
    node,
    fail: (gap) => list.fail(gap),
    update({ brokers, partitions, gap }) {
      const ids = brokers.map((b) => b.id);
      if (ids.join() !== shown) { shown = ids.join(); build(ids); }
      list.update(partitions, gap);
    },
  };
}

const KINDS = { none: "no replica", leader: "leader", in: "in sync", out: "not in sync" };

function moveDialog(done) {
  const topic = input({ required: true, autofocus: true }), partition = input({ required: true, inputmode: "numeric", pattern: "\\d+", value: "0" });
  const replicas = input({ required: true, pattern: "\\d+(\\s*,\\s*\\d+)*", placeholder: "2, 3, 1" });
  dialog({ title: "Move a partition", action: "Move", body: [h("div", { class: "row" }, field("Topic", topic), field("Partition", partition)), field("Brokers, the preferred leader first", replicas)],
    submit: async () => {
      await post("/api/reassignment/move", { moves: [{ topic: topic.value, partition: Number(partition.value), replicas: replicas.value.split(",").map((t) => Number(t.trim())) }] });
      toast(`${topic.value}-${partition.value} moves`);
      await done();
    } });
}

function configsDialog(broker) {
  const body = h("div", { class: "tab-body" });
  dialog({ title: `Configs of broker ${broker}`, wide: true, body });
  configEditor(body, { path: `/api/brokers/${broker}/configs`, title: `broker ${broker}`, own: "set on this broker" });
}
