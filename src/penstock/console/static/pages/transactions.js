// Transactional ids of all coordinators, and the details of one.

import { get, post } from "../api.js";
import { ago, clock, grouped, h, link, named, plural, replace } from "../dom.js";
import { load } from "../states.js";
import { dialog, guarded, input, note, pill, table, toast } from "../ui.js";

const STATES = { Ongoing: "info", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "", Empty: "" };
// The timeout that a two-phase transaction has (KIP-939).
const TWO_PHASE_MS = 2147483647;
const COLUMNS = [
  { id: "id", label: "Transactional id", first: true, sort: (t) => t.id, render: (t) => h("span", { class: "mono" }, t.id) },
  { id: "state", label: "State", sort: (t) => t.state, render: (t) => pill(t.state, STATES[t.state] ?? "") },
  { id: "producer", label: "Producer id", num: true, wide: true, render: (t) => grouped(t.producer_id) },
  { id: "coordinator", label: "Coordinator", num: true, sort: (t) => t.coordinator, render: (t) => t.coordinator },
];

export async function mount(root) {
  const search = input({ type: "search", placeholder: "Search transactional ids", "aria-label": "Search transactional ids", "data-search": true, on: { input: draw } });
  const count = h("span", { class: "muted", role: "status" }), problem = h("div", {});
  const list = table({ label: "Transactions", columns: COLUMNS, sortBy: "id", empty: "there is no transactional id, or this user may see none", key: (t) => t.id, onOpen: (t) => details(t.id) });
  list.node.classList.add("tall");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Transactions"), count, h("div", { class: "right" }, h("button", { on: { click: openOnes } }, "Open in partitions"))), h("div", { class: "bar" }, h("div", { class: "grow" }, search)), problem, list.node);
  let rows = null, gap = null;
  function draw() {
    if (!rows) { count.textContent = ""; list.update(null, gap); return; }
    const found = rows.filter((t) => t.id.includes(search.value.trim()));
    count.textContent = gap && !found.length ? "" : `${gap ? "at least " : ""}${plural(found.length, "transactional id")}, ${grouped(found.filter((t) => t.state === "Ongoing").length)} ongoing`;
    list.update(found, gap);
  }
  const update = () => load({ problem, parts: [list], request: () => get("/api/transactions"), show: (found) => { ({ transactions: rows, gap } = found); draw(); } });
  return { update, ready: update() };
}

// Transactions that are open in partitions. One that no coordinator knows is hanging: readers of committed records stop there.
function openOnes() {
  const problem = h("div", {});
  const state = (t) => (t.hanging === null ? "not known" : t.hanging ? pill("hanging", "bad") : "in use");
  const list = table({ label: "Open transactions", empty: "no transaction is open in a partition", key: (t) => `${t.topic}:${t.partition}`, columns: [
    { id: "topic", label: "Topic", first: true, render: (t) => named(t.topic) },
    { id: "partition", label: "Partition", num: true, render: (t) => t.partition },
    { id: "start", label: "From offset", num: true, render: (t) => grouped(t.start_offset) },
    { id: "last", label: "Last record", wide: true, render: (t) => ago((Date.now() - Number(t.last_ms)) / 1000) },
    { id: "state", label: "State", render: state },
    { id: "abort", label: "", render: (t) => t.hanging && guarded("alter", h("button", { class: "danger", type: "button", "aria-label": `Abort the transaction in ${t.topic}-${t.partition}`, on: { click: () => abort(t) } }, "Abort")) },
  ] });
  const update = () => load({ problem, parts: [list], request: () => get("/api/transactions/open"), show: (found) => list.update(found.open, found.gap) });
  const abort = (t) => dialog({ title: `Abort the transaction in ${t.topic}-${t.partition}`, action: "Abort", danger: true, body: h("p", {}, `Its records from offset ${grouped(t.start_offset)} on are never shown to readers of committed records. No coordinator knows the transaction.`),
    submit: async () => { await post("/api/transactions/abort", { topic: t.topic, partition: t.partition, start_offset: t.start_offset }); toast("The transaction was aborted"); await update(); } });
  dialog({ title: "Transactions that are open in partitions", wide: true, body: [problem, list.node] });
  update();
}

async function details(id) {
  const body = h("div", {}, "reading…");
  const shown = dialog({ title: id, body });
  try {
    const t = await get("/api/transaction", { id });
    const since = t.started ? `${clock(Date.parse(t.started), true)} (${ago((Date.now() - Date.parse(t.started)) / 1000)})` : "none is open";
    replace(body, h("dl", { class: "facts" }, [["State", pill(t.state, STATES[t.state] ?? "")], ["Started", since], ["Timeout", Number(t.timeout_ms) === TWO_PHASE_MS ? "none: an external coordinator decides (two-phase commit)" : `${grouped(t.timeout_ms)} ms`],
      ["Producer", `id ${grouped(t.producer_id)}, epoch ${t.producer_epoch}`], ["Coordinator", `broker ${t.coordinator}`],
      ["Partitions", t.partitions.length ? t.partitions.map((p) => h("div", {}, link(`topics/${encodeURIComponent(p.topic)}`, p.topic), ` [${p.partitions.join(", ")}]`)) : "none"]]
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  } catch (error) { replace(shown.errors, note(error.message)); }
}
