// Which clients write and read which topics: a bounded drawing, and the same as a table.

import { get } from "../api.js";
import { ago, grouped, h, link, named, plural, rate, replace, s } from "../dom.js";
import { known, listOr, load, shownLag, textOf } from "../states.js";
import { card, input, pill, table } from "../ui.js";

// The page is updated with each sample of the console; clients are asked for less often.
const AGAIN_MS = 12000;
const ROW = 34, HEIGHT = 26, ORDER = ["producer", "topic", "group"];
const WIDE = { box: 240, gap: 90, letters: 32 }, NARROW = { box: 98, gap: 20, letters: 12 };
const KINDS = { classic: "consumer group (classic)", consumer: "consumer group", share: "share group" };
const NO_ID = "no-id";

export async function mount(root, { query }) {
  const search = input({ type: "search", placeholder: "Topics and groups", "aria-label": "Search topics and groups", "data-search": true, value: query.get("q") ?? "", on: { input: soon } });
  const internal = h("input", { type: "checkbox", id: "topology-internal", on: { change: () => read() } });
  const count = h("span", { class: "muted", role: "status" }), problem = h("div", {}), gaps = h("div", {});
  const drawing = h("div", { class: "topology", tabindex: 0, role: "region", "aria-label": "Drawing" }, h("p", { class: "muted", "data-state": "loading" }, "loading…"));
  const list = table({ label: "Clients and topics", columns: LIST, sortBy: "topic", empty: "no client is known that writes or reads these topics", key: (r) => `${r.writes}:${r.client}:${r.topic}` });
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Topology"), count), h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: "topology-internal" }, internal, " internal topics")),
    problem, gaps, card("Drawing", legend(), drawing), card("Clients and topics", list.node));
  let timer = 0, at = 0;
  function soon() { clearTimeout(timer); timer = setTimeout(read, 250); }
  const failed = { fail: (gap) => { if (!drawing.querySelector("svg")) replace(drawing, h("p", { class: "muted", "data-state": gap.state }, textOf(gap))); } };
  async function read() {
    at = Date.now();
    const asked = search.value.trim();
    await load({ problem, parts: [list, failed], request: () => get("/api/topology", { q: asked, internal: internal.checked ? 1 : "" }), show: (found) => {
      if (asked !== search.value.trim()) return;
      const shown = withUnnamed(found);
      count.textContent = `${some(found.topics, found.topics_total, "topic", found.gaps.topics)}, ${some(found.groups, found.groups_total, "group", found.gaps.groups)}, ${some(found.producers, found.producers_total, "producer", found.gaps.producers ?? found.gaps.topics)}${found.topics.length < found.topics_total ? ": those with a problem first, then the busy ones" : ""}`;
      replace(gaps, [["groups", "Groups"], ["producers", "Producers"]].map(([part, label]) => found.gaps[part] && h("p", { class: "note warn", role: "status", "data-state": found.gaps[part].state }, `${label}, ${textOf(found.gaps[part])}`)));
      replace(drawing, found.topics.length ? draw(shown) : listOr([], found.gaps.topics, "no topic matches"));
      list.update(rowsOf(shown), found.gaps.groups ?? found.gaps.producers ?? found.gaps.topics);
    } });
  }
  return { update: () => { if (Date.now() - at > AGAIN_MS) read(); }, ready: read(), key: (e) => { if (e.key === "r") read(); }, destroy: () => clearTimeout(timer) };
}

// "3 topics", "40 of 90 topics", "at least 2 groups", "groups not known".
function some(rows, total, what, gap) {
  if (gap && !rows.length) return `${what}s not known`;
  const all = `${gap ? "at least " : ""}${plural(total, what)}`;
  return rows.length < total ? `${grouped(rows.length)} of ${all}` : all;
}
const legend = () => h("div", { class: "legend" }, h("span", {}, "producers"), h("span", {}, "→ topics"), h("span", {}, "→ groups"), [["leader", "active"], ["late", "lag, or under-replicated"], ["out", "without leader"]].map(([c, text]) => h("span", {}, h("i", { class: `cell ${c}` }), text)));

// Records arrive in a topic and no producer has an id there: a client without idempotence writes.
function withUnnamed(found) {
  const written = new Set(found.writes.map((w) => w.topic));
  const rest = found.gaps.producers ? [] : found.topics.filter((t) => t.records_per_s > 0 && !written.has(t.name));
  if (!rest.length) return found;
  return { ...found, producers: [...found.producers, { id: NO_ID, transactional_id: null, last_ms: null }], writes: [...found.writes, ...rest.map((t) => ({ producer: NO_ID, topic: t.name, last_ms: null, in_transaction: false }))] };
}

const producerName = (p) => (p.id === NO_ID ? "producers without an id" : p.transactional_id ?? `producer ${p.id}`);
const hasLag = (g) => Boolean(g.lag);
const recent = (ms) => ms !== null && Date.now() - Number(ms) < 300000;

// -- the drawing

function draw(found) {
  const size = matchMedia("(max-width: 760px)").matches ? NARROW : WIDE, left = (kind) => ORDER.indexOf(kind) * (size.box + size.gap), width = 3 * size.box + 2 * size.gap + 2;
  const places = new Map(), nodes = [], topicAt = new Map(found.topics.map((t, i) => [t.name, i]));
  const middle = (edges) => (edges.length ? edges.reduce((sum, e) => sum + (topicAt.get(e.topic) ?? 0), 0) / edges.length : 1e6);
  const near = (rows, edges) => rows.map((row) => ({ row, at: middle(edges(row)) })).sort((a, b) => a.at - b.at).map(({ row }) => row);
  const column = (kind, rows, make) => rows.forEach((row, i) => {
    const { id, label, href, state, title } = make(row), y = i * ROW;
    places.set(`${kind}:${id}`, y + HEIGHT / 2);
    nodes.push(node({ kind, id, label, href, state, title }, left(kind), y, size));
  });
  column("producer", near(found.producers, (p) => found.writes.filter((w) => w.producer === p.id)), (p) => ({ id: p.id, label: producerName(p), href: p.transactional_id === null ? null : "transactions", state: p.id === NO_ID || recent(p.last_ms) ? "on" : "", title: p.last_ms === null ? "" : `last record ${ago((Date.now() - Number(p.last_ms)) / 1000)}` }));
  column("topic", found.topics, (t) => ({ id: t.name, label: t.name, href: `topics/${encodeURIComponent(t.name)}`, state: t.offline ? "bad" : t.under_replicated ? "warn" : t.records_per_s ? "on" : "", title: t.offline ? `${plural(t.offline, "partition")} without leader` : t.under_replicated ? `${plural(t.under_replicated, "partition")} under-replicated` : t.records_per_s === null ? "" : rate(t.records_per_s) }));
  column("group", near(found.groups, (g) => found.reads.filter((r) => r.group === g.name)), (g) => ({ id: g.name, label: g.name, href: `groups/${encodeURIComponent(g.name)}`, state: hasLag(g) ? "warn" : g.members ? "on" : "", title: `${KINDS[g.kind] ?? g.kind}, ${g.state}${g.lag === null ? "" : `, lag ${grouped(g.lag)}`}` }));
  const height = Math.max(found.producers.length, found.topics.length, found.groups.length) * ROW;
  const lines = [...found.writes.map((w) => line("producer", w.producer, "topic", w.topic, w.in_transaction || recent(w.last_ms) || w.producer === NO_ID)), ...found.reads.map((r) => line("topic", r.topic, "group", r.group, r.assigned))];
  function line(from, a, to, b, active) {
    const y1 = places.get(`${from}:${a}`), y2 = places.get(`${to}:${b}`), x1 = left(from) + size.box, x2 = left(to), half = (x1 + x2) / 2;
    return s("path", { class: active ? "edge on" : "edge", d: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`, "data-a": `${from}:${a}`, "data-b": `${to}:${b}` });
  }
  const drawn = s("svg", { viewBox: `-1 -1 ${width} ${height}`, width, height, role: "group", "aria-label": `Drawing of ${plural(found.topics.length, "topic")} with their clients` }, lines, nodes);
  const light = (e) => {
    const own = e.type === "mouseout" || e.type === "focusout" ? null : e.target.closest(".node")?.dataset.node;
    drawn.classList.toggle("choosing", Boolean(own));
    for (const edge of lines) edge.classList.toggle("lit", own !== null && own !== undefined && (edge.dataset.a === own || edge.dataset.b === own));
  };
  for (const event of ["mouseover", "mouseout", "focusin", "focusout"]) drawn.addEventListener(event, light);
  return drawn;
}

// Names often begin alike, so that a long one is cut in its middle.
const shorten = (text, most) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text);

function node({ kind, id, label, href, state, title }, x, y, { box, letters }) {
  const inner = [s("title", {}, title ? `${label}: ${title}` : label), s("rect", { x, y, rx: 5, width: box, height: HEIGHT }), s("text", { x: x + 8, y: y + 17 }, shorten(label, letters))];
  const props = { class: `node ${kind} ${state}`.trim(), "data-node": `${kind}:${id}` };
  return href === null ? s("g", props, inner) : s("a", { ...props, href: `#/${href}`, "aria-label": `${kind} ${label}` }, inner);
}

// -- the table

const NONE = { state: "unknown", reason: "the brokers have not said it" };
const clients = (r) => {
  if (r.clients === null) return known(null, r.gap ?? NONE, String);
  const counted = new Map();
  for (const c of r.clients) { const text = `${c.client || "?"} @ ${c.host.replace(/^\//, "")}`; counted.set(text, (counted.get(text) ?? 0) + 1); }
  const texts = [...counted].map(([text, n]) => (n > 1 ? `${text} × ${n}` : text));
  return texts.length ? named(texts.join(", ") + (r.members > r.clients.length ? `, … (${grouped(r.members)} in all)` : "")) : h("span", { class: "muted" }, "no member");
};
const LIST = [
  { id: "client", label: "Client", first: true, sort: (r) => r.client, render: (r) => (r.href ? link(r.href, named(r.client)) : named(r.client)) },
  { id: "kind", label: "Type", wide: true, sort: (r) => r.kind, render: (r) => r.kind },
  { id: "does", label: "Does", sort: (r) => r.writes, render: (r) => (r.writes ? pill("writes", "info") : pill("reads", "")) },
  { id: "topic", label: "Topic", sort: (r) => r.topic, render: (r) => link(`topics/${encodeURIComponent(r.topic)}`, named(r.topic)) },
  { id: "members", label: "Client ids and addresses", wide: true, render: (r) => (r.writes ? known(null, { state: "unknown", reason: "the protocol does not tell the client of a producer" }, String) : clients(r)) },
  { id: "lag", label: "Lag", num: true, sort: (r) => r.read?.lag ?? -1, render: (r) => (r.writes ? "" : shownLag(r.read)) },
  { id: "last", label: "Last record", wide: true, num: true, sort: (r) => Number(r.last_ms ?? -1), render: (r) => (r.writes && r.last_ms !== null ? ago((Date.now() - Number(r.last_ms)) / 1000) : "") },
];

function rowsOf(found) {
  const producers = new Map(found.producers.map((p) => [p.id, p])), groups = new Map(found.groups.map((g) => [g.name, g]));
  const writes = found.writes.map((w) => {
    const p = producers.get(w.producer);
    return { writes: true, client: producerName(p), kind: p.id === NO_ID ? "producer" : p.transactional_id === null ? "idempotent producer" : "transactional producer", href: p.transactional_id === null ? null : "transactions", topic: w.topic, last_ms: w.last_ms, read: null };
  });
  const reads = found.reads.map((r) => {
    const g = groups.get(r.group);
    return { writes: false, client: g.name, kind: KINDS[g.kind] ?? g.kind, href: `groups/${encodeURIComponent(g.name)}`, topic: r.topic, read: r, clients: g.members === null ? null : g.clients, members: g.members, gap: g.members_gap, last_ms: null };
  });
  return [...writes, ...reads];
}
