// Links that mirror topics of other clusters: state, lag and errors, and the partitions of one link.

import { get } from "../api.js";
import { grouped, h, link, named, plural, replace, short } from "../dom.js";
import { exact, known, load } from "../states.js";
import { card, pill, stat, table } from "../ui.js";

const STATES = { active: "good", paused: "warn" };
const PHASES = { mirroring: "good", verifying: "", stopped: "", retrying: "warn", diverged: "bad" };
// The brokers describe all topics for an answer: not each tick asks again.
const PAUSE_MS = 5000;
const NOT_REPORTED = { state: "unknown", reason: "no broker reports the end at the source" };
const PROMOTED = { state: "unknown", reason: "the topic is not mirrored any more" };

export async function mount(root, context) {
  return context.parts.length ? mountLink(root, context.parts[0]) : mountList(root);
}

// Reads again with the ticks of the console, but not with each.
function paced(read) {
  let last = 0, pending = null;
  const again = () => { pending ??= read().finally(() => { pending = null; last = Date.now(); }); return pending; };
  return { update: () => (Date.now() - last < PAUSE_MS ? pending : again()), ready: again(), key: (e) => e.key === "r" && again() };
}

const LIST = [
  { id: "link", label: "Link", first: true, sort: (l) => l.link, render: (l) => link(`links/${encodeURIComponent(l.link)}`, named(l.link)) },
  { id: "state", label: "State", sort: (l) => l.state, render: (l) => pill(l.state, STATES[l.state] ?? "") },
  { id: "source", label: "Source", sort: (l) => l.source, render: (l) => h("span", { class: "mono" }, l.source) },
  { id: "topics", label: "Topics", num: true, wide: true, sort: (l) => l.topics, render: (l) => grouped(l.topics) },
  { id: "partitions", label: "Partitions", num: true, wide: true, sort: (l) => l.partitions, render: (l) => grouped(l.partitions) },
  { id: "lag", label: "Lag", num: true, sort: (l) => l.lag_records, render: (l) => known(l.lag_records, l.unknown_lags ? { state: "unknown", reason: `the lag of ${plural(l.unknown_lags, "partition")} is not known` } : null, short) },
  { id: "error", label: "Error", render: (l) => l.error && h("span", { class: "name", title: l.error }, l.error) },
];

async function mountList(root) {
  const problem = h("div", {}), count = h("span", { class: "muted", role: "status" });
  const list = table({ label: "Links", columns: LIST, sortBy: "link", empty: "there are no links", key: (l) => l.link, onOpen: (l) => { location.hash = `#/links/${encodeURIComponent(l.link)}`; } });
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Links"), count), h("p", { class: "muted" }, "Topics of other clusters that are mirrored here at the same offsets. ", h("span", { class: "mono" }, "penstock link"), " changes links."), problem, list.node);
  return paced(() => load({ problem, parts: [list], request: () => get("/api/links"), show: ({ links }) => {
    count.textContent = links ? plural(links.length, "link") : "";
    list.update(links, links ? null : { state: "unknown", reason: "this cluster has no links, or is no Penstock with links" });
  } }));
}

const PARTITIONS = [
  { id: "topic", label: "Topic", first: true, sort: (p) => p.topic, render: (p) => link(`topics/${encodeURIComponent(p.topic)}`, named(p.topic)) },
  { id: "partition", label: "Partition", num: true, sort: (p) => p.partition, render: (p) => p.partition },
  { id: "state", label: "Topic is", sort: (p) => p.state, render: (p) => pill(p.state, p.state === "promoted" ? "info" : "") },
  { id: "phase", label: "Mirror", sort: (p) => p.phase, render: (p) => (p.phase ? pill(p.phase, PHASES[p.phase] ?? "") : "–") },
  { id: "end", label: "Mirrored to", num: true, wide: true, render: (p) => exact(p.end_offset, whyNot(p), grouped) },
  { id: "lag", label: "Lag", num: true, sort: (p) => p.lag_records, render: (p) => exact(p.lag_records, whyNot(p), grouped) },
  { id: "ms", label: "Lag, ms", num: true, wide: true, sort: (p) => p.lag_ms, render: (p) => exact(p.lag_ms, whyNot(p), grouped) },
  { id: "missed", label: "Missed", num: true, wide: true, render: (p) => exact(p.missed, whyNot(p), grouped) },
  { id: "errors", label: "Errors", num: true, wide: true, sort: (p) => p.errors, render: (p) => exact(p.errors, whyNot(p), grouped) },
  { id: "reason", label: "Reason", render: (p) => p.reason && h("span", { class: "name", title: p.reason }, p.reason) },
];
const whyNot = (p) => (p.state === "promoted" ? PROMOTED : NOT_REPORTED);

async function mountLink(root, name) {
  const problem = h("div", {}), stats = h("div", { class: "stats" }), problems = h("div", {}), configs = h("dl", { class: "facts" });
  const partitions = table({ label: "Mirrored partitions", columns: PARTITIONS, sortBy: "lag", descending: true, empty: "nothing is mirrored yet", key: (p) => `${p.topic}:${p.partition}` });
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("links", "Links"), " / "), h("h1", { class: "mono" }, name)),
    problem, stats, card("In the way", problems), card("Partitions", partitions.node), card("Configs", configs));
  return paced(() => load({ problem, parts: [partitions], request: () => get("/api/link", { name }), show: (found) => {
    const state = found.configs.paused === "true" ? "paused" : "active";
    const mirrored = found.partitions.filter((p) => p.state !== "promoted");
    const lags = mirrored.map((p) => p.lag_records);
    const unknown = lags.filter((lag) => lag === null).length;
    replace(stats, stat("State", pill(state, STATES[state])), stat("Lag", `${unknown ? "≥ " : ""}${short(lags.reduce((sum, lag) => sum + (lag ?? 0), 0))}`, unknown ? `records, ${plural(unknown, "partition")} not known` : "records"),
      stat("Partitions", grouped(mirrored.length)), stat("Promoted", grouped(found.partitions.length - mirrored.length)));
    const reasons = Object.entries(found.problems);
    replace(problems, reasons.length ? reasons.map(([about, reason]) => h("p", {}, h("strong", {}, about), `: ${reason}`)) : h("p", { class: "muted", "data-state": "empty" }, "no broker reports an error"));
    replace(configs, Object.entries(found.configs).map(([key, value]) => [h("dt", { class: "mono" }, key), h("dd", { class: "mono" }, value)]));
    partitions.update(found.partitions);
  } }));
}
