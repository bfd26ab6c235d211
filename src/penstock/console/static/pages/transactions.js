// Transactional ids of all coordinators, and the details of one.

import { get } from "../api.js";
import { ago, clock, grouped, h, link, plural, replace } from "../dom.js";
import { dialog, input, note, pill, table } from "../ui.js";

const STATES = { Ongoing: "info", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "", Empty: "" };
const COLUMNS = [
  { id: "id", label: "Transactional id", first: true, sort: (t) => t.id, render: (t) => h("span", { class: "mono" }, t.id) },
  { id: "state", label: "State", sort: (t) => t.state, render: (t) => pill(t.state, STATES[t.state] ?? "") },
  { id: "producer", label: "Producer id", num: true, wide: true, render: (t) => grouped(t.producer_id) },
  { id: "coordinator", label: "Coordinator", num: true, sort: (t) => t.coordinator, render: (t) => t.coordinator },
];

export async function mount(root) {
  const search = input({ type: "search", placeholder: "Search transactional ids", "aria-label": "Search transactional ids", "data-search": true, on: { input: draw } });
  const count = h("span", { class: "muted", role: "status" }), problem = h("div", {});
  const list = table({ label: "Transactions", columns: COLUMNS, sortBy: "id", empty: "no transactional id is known", key: (t) => t.id, onOpen: (t) => details(t.id) });
  list.node.classList.add("tall");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Transactions"), count), h("div", { class: "bar" }, h("div", { class: "grow" }, search)), problem, list.node);
  let rows = [];
  function draw() {
    const found = rows.filter((t) => t.id.includes(search.value.trim()));
    count.textContent = `${plural(found.length, "transactional id")}, ${grouped(found.filter((t) => t.state === "Ongoing").length)} ongoing`;
    list.update(found);
  }
  async function update() {
    try {
      const found = await get("/api/transactions");
      replace(problem, found.silent.length ? note(`No answer from broker ${found.silent.join(", ")}: its transactions are missing here.`, "warn") : null);
      rows = found.transactions;
      draw();
    } catch (error) { replace(problem, note(error.message)); }
  }
  await update();
  return { update };
}

async function details(id) {
  const body = h("div", {}, "reading…");
  const shown = dialog({ title: id, body });
  try {
    const t = await get("/api/transaction", { id });
    const since = t.started ? `${clock(Date.parse(t.started), true)} (${ago((Date.now() - Date.parse(t.started)) / 1000)})` : "none is open";
    replace(body, h("dl", { class: "facts" }, [["State", pill(t.state, STATES[t.state] ?? "")], ["Started", since], ["Timeout", `${grouped(t.timeout_ms)} ms`],
      ["Producer", `id ${grouped(t.producer_id)}, epoch ${t.producer_epoch}`], ["Coordinator", `broker ${t.coordinator}`],
      ["Partitions", t.partitions.length ? t.partitions.map((p) => h("div", {}, link(`topics/${encodeURIComponent(p.topic)}`, p.topic), ` [${p.partitions.join(", ")}]`)) : "none"]]
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  } catch (error) { replace(shown.errors, note(error.message)); }
}
