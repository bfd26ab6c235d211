// Explained health, brokers, throughput, lag, what changed lately.

import { get } from "../api.js";
import { ago, bytes, clock, grouped, h, link, named, rate, replace, short } from "../dom.js";
import { chart, meter, spark } from "../plots.js";
import { exact, known, listOr, load, shownLag } from "../states.js";
import { LEVELS, card, pill, severity, stat, table } from "../ui.js";

export async function mount(root, { session }) {
  const health = h("div", {}), stats = h("div", { class: "stats" }), quorum = h("div", {});
  const records = chart({ label: "Records in per second", format: (n) => rate(n, "") });
  const volume = chart({ label: "Bytes in per second", format: bytes, axis: { whole: true, base: 1024 } });
  const lag = chart({ label: "Consumer lag, records", axis: { whole: true } });
  const brokers = table({ label: "Brokers", columns: BROKERS, empty: "no broker has responded" });
  const busiest = table({ label: "Busiest topics", columns: BUSIEST, empty: "no records are written now" });
  const laggards = table({ label: "Groups with lag", columns: LAGGARDS, empty: "no group has lag" });
  const alerts = table({ label: "Active alerts", columns: ALERTS, empty: "no alert is active", key: (a) => a.text });
  const events = h("ul", { class: "events" }), backup = h("div", {});
  root.append(h("h1", {}, "Overview"), health, stats, card("Active alerts", alerts.node),
    h("div", { class: "grid" }, h("div", { class: "card" }, records.node), h("div", { class: "card" }, volume.node), h("div", { class: "card" }, lag.node)),
    h("div", { class: "grid" }, card("Busiest topics", busiest.node), card("Groups with lag", laggards.node)),
    card("Brokers", brokers.node),
    h("div", { class: "grid" }, card("Metadata quorum", quorum), session.backup ? card("Backup", backup) : null, card("What changed lately", events)));

  const updateBackup = () => session.backup && load({ problem: backup, request: () => get("/api/backup"), show: (found) => replace(backup, shownBackup(found)) });
  const update = () => Promise.all([updateCluster(), updateBackup()]);
  const updateCluster = () => load({ problem: health, parts: [alerts, brokers, busiest, laggards], request: () => get("/api/overview"), show });
  function show(found) {
    replace(health, shownHealth(found.health));
    const gaps = found.gaps ?? {};
    replace(stats, ...totals(found, gaps));
    records.update(found.series.records);
    volume.update(found.series.bytes);
    lag.update(found.series.lag);
    alerts.update(found.alerts, found.alerts_gap);
    brokers.update(found.brokers);
    busiest.update(found.busiest, found.busiest === null ? { state: "loading", reason: "" } : gaps.ends);
    laggards.update(found.laggards, gaps.lag);
    replace(quorum, shownQuorum(found.quorum));
    replace(events, found.events.length
      ? found.events.map((e) => h("li", { class: severity[e.severity] }, link(e.page, e.text), h("time", { title: clock(e.time_s * 1000, true) }, ago(Date.now() / 1000 - e.time_s))))
      : h("li", { class: "dim" }, h("span", {}, "Nothing has changed since this page was opened.")));
  }
  return { update, ready: update() };
}

export function shownHealth({ level, reasons }) {
  const why = reasons.length ? h("ul", {}, reasons.slice(0, 12).map((r) => h("li", {}, r))) : h("div", { class: "muted" }, "Every partition has a leader and all its replicas are in sync.");
  return h("div", { class: `health ${LEVELS[level]}`, role: "status" }, h("div", {}, h("strong", {}, TITLES[level]), why));
}

const TITLES = {
  Healthy: "The cluster is healthy",
  Degraded: "The cluster works, and something needs attention",
  Unhealthy: "Some data is not available",
  Unknown: "The state of the cluster is not known",
};

const totals = ({ totals: t, brokers }, gaps) => [
  stat("Brokers", `${brokers.filter((b) => b.state === "running").length} / ${brokers.length}`, "running", brokers.some((b) => b.state !== "running") ? "warn" : ""),
  stat("Topics", known(t.topics, gaps.topics, grouped), `${grouped(t.internal_topics)} internal`),
  stat("Partitions", known(t.partitions, gaps.topics, grouped), t.offline ? `${grouped(t.offline)} without leader` : gaps.topics ? "those this user sees" : "all have a leader", t.offline ? "bad" : ""),
  stat("Under-replicated", known(t.under_replicated, gaps.topics, grouped), t.under_replicated === 1 ? "partition" : "partitions", t.under_replicated ? "warn" : ""),
  stat("In", known(t.records_per_s, t.records_per_s === null ? MEASURING : gaps.ends, rate), [known(t.bytes_per_s, t.bytes_per_s === null ? MEASURING : gaps.sizes, (n) => `${bytes(n)}/s`), " without internal topics"]),
  stat("Stored", known(t.size, gaps.size, bytes), "leaders' logs"),
  stat("Groups", known(t.groups, gaps.groups, grouped), "all types"),
  stat("Lag", known(t.lag, gaps.lag, short), "records"),
];

const MEASURING = { state: "loading", reason: "" };
const STATES = { running: "good", fenced: "warn", silent: "warn", gone: "bad" };
const BROKERS = [
  { id: "id", label: "Broker", first: true, sort: (b) => b.id, render: (b) => link("cluster", `Broker ${b.id}`) },
  { id: "state", label: "State", sort: (b) => b.state, render: (b) => pill(b.state, STATES[b.state]) },
  { id: "role", label: "Role", render: (b) => (b.controller ? pill("controller", "info") : b.voter ? "voter" : "") },
  { id: "address", label: "Address", wide: true, render: (b) => h("span", { class: "mono" }, b.address ?? "–") },
  { id: "rack", label: "Rack", wide: true, render: (b) => b.rack ?? "–" },
  { id: "leads", label: "Leads", num: true, sort: (b) => b.leads, render: (b) => known(b.leads, b.gap, grouped) },
  { id: "replicas", label: "Replicas", num: true, sort: (b) => b.replicas, render: (b) => known(b.replicas, b.gap, grouped) },
  { id: "behind", label: "Not in sync", num: true, sort: (b) => b.behind, render: (b) => h("span", { class: b.behind ? "warn" : "" }, known(b.behind, b.gap, grouped)) },
  { id: "size", label: "Stored", num: true, sort: (b) => b.size, render: (b) => bytes(b.size) },
  { id: "disk", label: "Disk", wide: true, render: disk },
];

function disk(b) {
  if (!b.disk_total) return "–";
  const used = 1 - b.disk_free / b.disk_total;
  return [meter(used, `${Math.round(used * 100)} % of the volume used`, used > 0.9 ? "bad" : used > 0.8 ? "warn" : ""), `${bytes(b.disk_free)} free`];
}

const ALERTS = [
  { id: "severity", label: "Severity", render: (a) => pill(a.severity, a.severity === "critical" ? "bad" : "warn") },
  { id: "alert", label: "Alert", first: true, render: (a) => link(a.page, named(a.text)) },
  { id: "since", label: "Since", num: true, render: (a) => h("span", { title: clock(a.since_s * 1000, true) }, ago(Date.now() / 1000 - a.since_s)) },
];
const BUSIEST = [
  { id: "topic", label: "Topic", first: true, render: (r) => link(`topics/${encodeURIComponent(r.topic)}`, named(r.topic)) },
  { id: "rate", label: "Records", num: true, render: (r) => rate(r.records_per_s) },
  { id: "bytes", label: "Bytes", num: true, wide: true, render: (r) => exact(r.bytes_per_s, MEASURING, (n) => `${bytes(n)}/s`) },
  { id: "spark", label: "", render: (r) => spark(r.rate, `rate of ${r.topic}`) },
];
const LAGGARDS = [
  { id: "group", label: "Group", first: true, render: (r) => link(`groups/${encodeURIComponent(r.group)}`, named(r.group)) },
  { id: "state", label: "State", wide: true, render: (r) => r.state },
  { id: "lag", label: "Lag", num: true, render: shownLag },
  { id: "spark", label: "", render: (r) => spark(r.series, `lag of ${r.group}`) },
];

function shownBackup(b) {
  const fact = (age, interval, bad) => [age === null ? pill("none yet", bad ? "bad" : "warn") : h("span", { class: bad ? "bad" : "" }, ago(age)), interval === null ? "" : h("span", { class: "muted" }, `, one each ${ago(interval).replace(" ago", "")}`)];
  return h("dl", { class: "facts" },
    h("dt", {}, "Newest cut"), h("dd", {}, fact(b.newest_cut_age_s, b.interval_s, b.is_late)),
    h("dt", {}, "Verified"), h("dd", {}, b.verification_interval_s === null ? h("span", { class: "muted" }, "not by this process: --verify-every") : fact(b.verified_age_s, b.verification_interval_s, b.is_unverified)),
    b.unrestorable_partitions ? [h("dt", {}, "Damaged"), h("dd", { class: "bad" }, `${grouped(b.unrestorable_partitions)} partitions cannot be restored`)] : null,
    b.failures ? [h("dt", {}, "Failed cuts"), h("dd", {}, grouped(b.failures))] : null);
}

function shownQuorum(q) {
  if (!q) return listOr(null, { state: "unknown", reason: "the brokers do not describe the quorum to this user" });
  return h("dl", { class: "facts" },
    h("dt", {}, "Leader"), h("dd", {}, q.leader === null ? pill("none", "bad") : `node ${q.leader}, epoch ${q.epoch}`),
    h("dt", {}, "High watermark"), h("dd", {}, grouped(q.high_watermark)),
    h("dt", {}, "Voters"), h("dd", {}, q.voters.map((v) => h("div", {}, `node ${v.id}`, v.lag ? h("span", { class: "warn" }, ` ${grouped(v.lag)} behind`) : ""))),
    q.observers.length ? [h("dt", {}, "Observers"), h("dd", {}, q.observers.map((v) => `node ${v.id}`).join(", "))] : null);
}
