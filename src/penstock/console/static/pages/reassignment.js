// Reassignments: the balance of brokers, moves in progress, throttles, and plans that are shown before they are executed.

import { get, post } from "../api.js";
import { bytes, grouped, h, link, named, plural, replace } from "../dom.js";
import { meter } from "../plots.js";
import { exact, known, load, textOf } from "../states.js";
import { plain } from "../units.js";
import { card, dialog, field, guarded, input, note, pill, select, table, toast } from "../ui.js";

const STATES = { running: "good", fenced: "warn", silent: "warn", gone: "bad" };
const SILENT = { state: "unknown", reason: "the broker has not said it" };
const NO_SIZE = { state: "unknown", reason: "the size of the partition is not known" };
const percent = (share) => `${Math.round(share * 100)} %`;

export const MOVES = [
  { id: "topic", label: "Partition", first: true, render: (m) => link(`topics/${encodeURIComponent(m.topic)}/partitions`, named(`${m.topic}-${m.partition}`)) },
  { id: "progress", label: "Progress", render: (m) => (m.progress === null ? known(null, NO_SIZE) : [meter(m.progress, `${percent(m.progress)} copied`), percent(m.progress)]) },
  { id: "adding", label: "Adding", render: (m) => m.adding.join(", ") || "–" },
  { id: "removing", label: "Removing", wide: true, render: (m) => m.removing.join(", ") || "–" },
  { id: "in_sync", label: "In sync", num: true, wide: true, render: (m) => `${m.in_sync} of ${m.adding.length}` },
  { id: "copied", label: "Copied", num: true, wide: true, render: (m) => [exact(m.to_copy === null ? null : m.copied, NO_SIZE, bytes), " of ", exact(m.to_copy, NO_SIZE, bytes)] },
  { id: "reason", label: "Reason", wide: true, render: (m) => m.reason || "requested" },
  { id: "cancel", label: "", render: (m) => guarded("alter", h("button", { class: "ghost", type: "button", "aria-label": `Cancel the move of ${m.topic}-${m.partition}`, "data-cancel": JSON.stringify([m.topic, m.partition]) }, "Cancel")) },
];

// A table of moves with buttons that cancel them.
export function movesTable(done) {
  const list = table({ label: "Moves", columns: MOVES, empty: "no partition is moving", key: (m) => `${m.topic}:${m.partition}` });
  list.node.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-cancel]");
    if (!button) return;
    const [topic, partition] = JSON.parse(button.dataset.cancel);
    try {
      const { cancelled } = await post("/api/reassignment/cancel", { partitions: [[topic, partition]] });
      toast(cancelled ? `The move of ${topic}-${partition} was cancelled` : `${topic}-${partition} does not move any more`);
      await done();
    } catch (error) { toast(error.message, "bad"); }
  });
  return list;
}

export async function electAll(done) {
  try {
    const { elected } = await post("/api/cluster/election", { partitions: null });
    toast(elected ? `${plural(elected, "leader")} elected` : "every partition has its preferred leader");
    await done();
  } catch (error) { toast(error.message, "bad"); }
}

// A number with a bar beside it: uneven brokers are seen at a glance.
const bar = (value, top, gap, format) => (value === null ? known(null, gap) : [meter(top ? value / top : 0, format(value)), known(value, gap, format)]);

function balanceTable() {
  const top = {};
  const columns = [
    { id: "id", label: "Broker", first: true, sort: (b) => b.id, render: (b) => [`${b.id} `, b.state === "running" ? "" : pill(b.state, STATES[b.state])] },
    { id: "replicas", label: "Replicas", sort: (b) => b.replicas, render: (b) => bar(b.replicas, top.replicas, b.gap, grouped) },
    { id: "leads", label: "Leaders", sort: (b) => b.leads, render: (b) => bar(b.leads, top.leads, b.gap, grouped) },
    { id: "size", label: "Size", sort: (b) => b.size, render: (b) => bar(b.size, top.size, b.size === null ? SILENT : null, bytes) },
    { id: "preferred", label: "Preferred leader of", num: true, wide: true, sort: (b) => b.preferred, render: (b) => known(b.preferred, b.gap, grouped) },
    { id: "free", label: "Free", num: true, wide: true, sort: (b) => b.disk_free, render: (b) => exact(b.disk_free, SILENT, bytes) },
    { id: "rack", label: "Rack", wide: true, render: (b) => b.rack ?? "–" },
  ];
  const list = table({ label: "Balance of brokers", columns, sortBy: "id", empty: "there is no broker", key: (b) => b.id });
  return { node: list.node, fail: list.fail, update(rows) {
    for (const name of ["replicas", "leads", "size"]) top[name] = Math.max(0, ...rows.map((b) => b[name] ?? 0));
    list.update(rows);
  } };
}

export async function mountReassignment(root, context) {
  const problem = h("div", {}), balance = balanceTable(), spread = h("p", { class: "muted", role: "status" });
  const moving = movesTable(() => update()), total = h("span", { class: "muted", role: "status" });
  const cancelAll = guarded("alter", h("button", { type: "button", on: { click: () => cancelEvery(() => update()) } }, "Cancel all"));
  const cancelBox = h("span", { hidden: true }, cancelAll);
  const throttle = throttleCard(() => update());
  const planner = planCard(context, () => update());
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Reassignment"), h("div", { class: "right" },
    guarded("alter", h("button", { type: "button", on: { click: () => electAll(() => update()) } }, "Elect preferred leaders")))),
    problem, card("Balance of brokers", spread, balance.node),
    h("section", { class: "card", "aria-label": "Moves in progress" }, h("div", { class: "page-head" }, h("h2", {}, "Moves in progress"), total, h("div", { class: "right" }, cancelBox)), moving.node),
    throttle.node, planner.node);

  const update = () => load({ problem, parts: [balance, moving, throttle], request: () => get("/api/reassignment"), show });
  function show(found) {
    balance.update(found.brokers);
    spread.textContent = uneven(found);
    moving.update(found.moves, found.moves_gap);
    total.textContent = found.moves?.length ? inProgress(found.moves) : "";
    cancelBox.hidden = !found.moves?.length;
    throttle.update(found.throttle, found.moves);
    planner.update(found);
  }
  return { update, ready: update() };
}

function uneven({ spread, not_preferred: off, sizes_gap: gap }) {
  const parts = [["replicas", "replicas"], ["leads", "leaders"], ["size", "bytes"]].filter(([n]) => spread[n] !== null)
    .map(([n, text]) => `${percent(spread[n])} more ${text}`);
  const even = parts.length ? `The fullest broker has ${parts.join(", ")} than the mean.` : "";
  return [even, off ? `${plural(off, "partition")} not led by the preferred leader.` : "", gap ? `Sizes are incomplete: ${gap.reason}.` : ""].filter(Boolean).join(" ");
}

function inProgress(moves) {
  const sized = moves.filter((m) => m.to_copy !== null);
  const sum = (name) => sized.reduce((all, m) => all + m[name], 0);
  return `${plural(moves.length, "partition")}, ${sized.length < moves.length ? "at least " : ""}${bytes(sum("copied"))} of ${bytes(sum("to_copy"))} copied`;
}

const cancelEvery = (done) => dialog({ title: "Cancel all moves", action: "Cancel all moves", danger: true, body: h("p", {}, "Partitions that are moving keep their old replicas. Moves that are done stay. The throttle ends."),
  submit: async () => {
    const { cancelled } = await post("/api/reassignment/cancel", { partitions: null });
    toast(`${plural(cancelled, "move")} cancelled`);
    await done();
  } });

// -- throttles

function throttleCard(done) {
  const body = h("div", {}, "loading…");
  const node = card("Throttle", body);
  const speed = (n) => (n === null ? "no limit" : `${bytes(n)}/s`);
  const limits = (r) => `${r.brokers.length === 1 ? "broker" : "brokers"} ${r.brokers.join(", ")}: ${speed(r.leader)} out, ${speed(r.follower)} in`;
  // Brokers with the same rates are one line.
  const groups = (rates) => [...Map.groupBy(rates, (r) => `${r.leader} ${r.follower} ${r.by_move}`).values()].map((same) => ({ ...same[0], brokers: same.map((r) => r.broker) }));
  const end = (t) => dialog({ title: "Remove the throttle", action: "Remove", body: [h("p", {}, t.by_move ? "The rates and lists that were set before the throttle return." : "The rates of these brokers, and the lists of throttled replicas of all topics, are removed:"), t.by_move ? "" : h("ul", {}, groups(t.rates).map((r) => h("li", {}, limits(r))))],
    submit: async () => { await post("/api/reassignment/throttle/end"); toast("The throttle was removed"); await done(); } });
  return { node,
    fail: (gap) => replace(body, h("p", { class: "muted", "data-state": gap.state }, textOf(gap))),
    update(t, moves) {
      if (t.rates === null) { replace(body, h("p", { class: "muted", "data-state": t.gap.state }, textOf(t.gap))); return; }
      const incomplete = t.gap && h("p", { class: "muted", "data-state": t.gap.state }, `incomplete: ${t.gap.reason}`);
      if (!t.rates.length) { replace(body, h("p", { class: "muted", "data-state": t.gap ? t.gap.state : "empty" }, t.gap ? "no rate is known" : "no throttle is set"), incomplete); return; }
      const left = moves && !moves.length;
      const whose = !t.by_move ? (left ? "No partition moves, and this console does not know who has set these rates." : "")
        : left ? (t.ends_itself ? "No partition moves: the controller removes the throttle within a minute." : "No partition moves: remove the throttle.")
        : t.ends_itself ? "Set for the moves. It ends with them, also if this page is closed." : "Set for the moves. It ends with them as long as this console runs.";
      // A throttle without a memory belongs to an operator, or to Kafka's brokers, which have none.
      const removable = t.by_move || !t.ends_itself;
      replace(body, h("ul", { class: "plain" }, groups(t.rates).map((r) => h("li", {}, limits(r), r.by_move ? "" : h("span", { class: "muted" }, " · set by an operator")))), h("p", { class: "muted" }, whose), incomplete,
        removable && guarded("alter_configs", h("button", { type: "button", on: { click: () => end(t) } }, "Remove throttle")));
    } };
}

// The rate of a text such as "50 MiB"; null for no throttle.
function rateOf(text) {
  if (!text.trim()) return null;
  const value = plain(text.replace(/\/s$/, ""), "bytes");
  if (value === null || !/^\d+$/.test(value) || value === "0" || value.length > 15) throw new Error(`"${text}" is not a rate, such as 50 MiB`);
  return Number(value);
}
const rateField = () => {
  const box = input({ placeholder: "no limit", "aria-label": "Throttle per second and broker" });
  return { box, node: guarded("alter_configs", field("Throttle per second and broker", box, "such as 50 MiB; removed when the moves have ended")) };
};

function started(answer) {
  toast(`${plural(answer.started, "move")} started`);
  if (answer.refused) toast(`${plural(answer.refused, "move")} refused: ${answer.reason}`, "bad");
}

// -- plans

const pair = ([before, after], format) => (before === after ? format(after) : h("span", { title: `${format(before)} now` }, h("span", { class: "muted" }, `${format(before)} → `), format(after)));
const PLAN_BROKERS = [
  { id: "id", label: "Broker", first: true, sort: (b) => b.id, render: (b) => b.id },
  { id: "replicas", label: "Replicas", num: true, render: (b) => pair(b.replicas, grouped) },
  { id: "leaders", label: "Preferred leader of", num: true, wide: true, render: (b) => pair(b.leaders, grouped) },
  { id: "size", label: "Size", num: true, render: (b) => pair(b.size, bytes) },
  { id: "received", label: "Receives", num: true, render: (b) => bytes(b.received) },
];
const PLAN_MOVES = [
  { id: "topic", label: "Partition", first: true, sort: ([t, p]) => `${t} ${p}`, render: ([t, p]) => named(`${t}-${p}`) },
  { id: "from", label: "Replicas now", render: ([, , from, to]) => from.map((b) => h("span", { class: `replica ${to.includes(b) ? "" : "out"}` }, b)) },
  { id: "to", label: "Then", render: ([, , from, to]) => to.map((b) => h("span", { class: `replica ${from.includes(b) ? "" : "leader"}` }, b)) },
  { id: "bytes", label: "Copies", num: true, sort: (m) => m[4], render: ([, , , , n]) => exact(n, NO_SIZE, (size) => (size ? bytes(size) : "nothing")) },
];

function planCard(context, done) {
  const topics = input({ value: context.query.get("topics") ?? "", placeholder: "all topics" });
  const by = select([["replicas", "the number of replicas"], ["bytes", "replicas and bytes"]], "replicas");
  const leaving = h("span", { role: "group", "aria-label": "Brokers to empty" }), away = new Set(), result = h("div", {}), errors = h("div", {});
  const make = h("button", { class: "primary", type: "submit" }, "Make a plan");
  const form = h("form", { "aria-label": "Plan", on: { submit: async (e) => {
    e.preventDefault();
    make.disabled = true;
    replace(errors);
    try {
      draw(await post("/api/reassignment/plan", { topics: topics.value, leaving: [...away], by: by.value }));
    } catch (error) { replace(result); replace(errors, note(error.message)); } finally { make.disabled = false; }
  } } }, h("div", { class: "row" }, field("Topics that contain", topics), field("Even out", by)), h("div", { class: "field" }, h("span", { class: "label" }, "Brokers to empty"), leaving), make);
  const node = card("Plan", h("p", { class: "muted" }, "A plan has few moves that even out the brokers. Nothing moves before it is executed."), form, errors, result);
  node.hidden = true;
  let ids = "";

  function draw(plan) {
    const cautions = [
      plan.stuck > 0 && note(`${plural(plan.stuck, "partition")}, such as ${plan.stuck_example}, cannot leave: too few other brokers have a place for a replica.`, "warn"),
      plan.unsure && note(`It is not known which brokers are kept empty: ${plan.unsure}`, "warn"),
      plan.excluded.length > 0 && h("p", { class: "muted" }, `Brokers that are kept empty: ${plan.excluded.join(", ")} (penstock.balance.exclude.brokers)`),
    ];
    if (!plan.total) { replace(result, cautions, note(plan.stuck ? "No partition can move." : "The brokers are even: nothing has to move.", plan.stuck ? "warn" : "good")); return; }
    const brokers = table({ label: "Brokers before and after", columns: PLAN_BROKERS, sortBy: "id", whole: true });
    const list = table({ label: "Planned moves", columns: PLAN_MOVES });
    brokers.update(plan.brokers);
    list.update(plan.moves);
    const summary = h("p", { role: "status" }, `${plural(plan.total, "partition")}, `, plan.copying ? [known(plan.bytes, plan.bytes_gap, bytes), ` to copy for ${grouped(plan.copying)} of them`] : "no data to copy: only the order of replicas changes",
      plan.moves.length < plan.total ? `; the ${grouped(plan.moves.length)} largest are shown` : "", ".");
    replace(result, cautions, summary, brokers.node, list.node, h("div", { class: "page-head" }, h("div", { class: "right" }, plan.moves.length === plan.total && save(plan), guarded("alter", h("button", { class: "primary", type: "button", on: { click: () => execute(plan) } }, "Execute plan")))));
  }

  // The format of Kafka's own tool.
  function save(plan) {
    const content = { version: 1, partitions: plan.moves.map(([topic, partition, , replicas]) => ({ topic, partition, replicas })) };
    return h("a", { class: "button", download: "plan.json", href: `data:application/json,${encodeURIComponent(JSON.stringify(content))}` }, "Save as file");
  }

  function execute(plan) {
    const rate = rateField(), keep = h("input", { type: "checkbox", id: "keep-empty", checked: true });
    const empties = plan.leaving.length > 0;
    dialog({ title: "Execute plan", action: "Execute", body: [h("p", {}, `${plural(plan.total, "partition")} ${plan.total === 1 ? "moves" : "move"}, `, known(plan.bytes, plan.bytes_gap, bytes), " are copied."), rate.node,
      empties && guarded("alter_configs", h("label", { for: "keep-empty" }, keep, ` place no new replicas on broker ${plan.leaving.join(", ")} afterwards`))],
      submit: async () => {
        started(await post("/api/reassignment/execute", { plan: plan.plan, throttle: rateOf(rate.box.value), keep_empty: empties && keep.checked && keep.checkVisibility() }));
        replace(result);
        await done();
      } });
  }

  return { node, update(found) {
    node.hidden = !found.plans;
    const now = found.brokers.filter((b) => b.state !== "gone").map((b) => b.id);
    if (now.join() === ids) return;
    ids = now.join();
    replace(leaving, now.map((b) => h("label", { class: "choice" }, h("input", { type: "checkbox", checked: away.has(b), on: { change: (e) => { if (e.target.checked) away.add(b); else away.delete(b); } } }), ` ${b}`)));
  } };
}

// -- one partition, by hand

export async function movePartition(topic, { partition, replicas, size }, done) {
  const { brokers } = await get("/api/reassignment");
  const ids = brokers.filter((b) => b.state !== "gone").map((b) => b.id);
  const chosen = [...replicas], rows = h("div", {}), cost = h("p", { class: "muted", role: "status" }), rate = rateField();
  const more = h("button", { type: "button", on: { click: () => { chosen.push(ids.find((b) => !chosen.includes(b))); draw(); } } }, "Add a replica");
  function draw() {
    replace(rows, chosen.map((b, i) => {
      const label = i ? `Replica ${i + 1}` : "Preferred leader";
      const options = [...new Set([b, ...ids])].sort((x, y) => x - y).map((id) => [String(id), `broker ${id}`]);
      const box = select(options, String(b), { "aria-label": label, on: { change: (e) => { const next = Number(e.target.value), other = chosen.indexOf(next); if (other >= 0) chosen[other] = chosen[i]; chosen[i] = next; draw(); } } });
      return h("div", { class: "bar" }, h("span", { class: "grow" }, label), box, chosen.length > 1 && h("button", { class: "ghost", type: "button", "aria-label": `Remove ${label.toLowerCase()}`, on: { click: () => { chosen.splice(i, 1); draw(); } } }, "✕"));
    }));
    more.hidden = !ids.some((b) => !chosen.includes(b));
    const added = chosen.filter((b) => !replicas.includes(b)), removed = replicas.filter((b) => !chosen.includes(b));
    const copies = added.length ? `${size === null ? "An amount that is not known" : bytes(size * added.length)} is copied to broker ${added.join(", ")}.` : "No data is copied.";
    cost.textContent = `${copies}${removed.length ? ` Broker ${removed.join(", ")} ${removed.length === 1 ? "loses its replica" : "lose their replicas"} afterwards.` : ""}`;
  }
  draw();
  dialog({ title: `Move ${topic}-${partition}`, action: "Move", body: [rows, more, cost, rate.node],
    submit: async () => { started(await post("/api/reassignment/move", { moves: [{ topic, partition, replicas: chosen }], throttle: rateOf(rate.box.value) })); await done(); } });
}
