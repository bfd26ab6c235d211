// The metadata log as a timeline, and what differs between two moments of it.

import { get } from "../api.js";
import { clock, grouped, h, plural, replace } from "../dom.js";
import { chart } from "../plots.js";
import { load } from "../states.js";
import { card, input, note, pill, select, table } from "../ui.js";

const LEVELS = { added: "good", removed: "bad", changed: "info" };
const KEEP = 300;

export async function mountLog(root) {
  const search = input({ type: "search", placeholder: "Search changes", "aria-label": "Search changes", "data-search": true, on: { input: () => update() } });
  const kind = select([["", "All kinds"]], "", { "aria-label": "Kind", on: { change: () => update() } });
  const until = input({ type: "datetime-local", step: "1", "aria-label": "Up to this time", on: { change: () => update() } });
  const count = h("span", { class: "muted", role: "status" }), problem = h("div", {});
  const plot = chart({ label: "Changes of the metadata", height: 90 });
  const moments = h("p", { class: "moments" }), result = h("div", { class: "diff-result", role: "status" });
  let from = null, to = null, known = [], end = null, times = new Map();

  const choice = (name, entry) => h("input", { type: "radio", name, value: entry.offset, checked: (name === "from" ? from : to) === entry.offset,
    "aria-label": `${name === "from" ? "From" : "To"} offset ${entry.offset}`, on: { change: () => { if (name === "from") from = entry.offset; else to = entry.offset; compare(); } } });
  const list = table({ label: "Changes", empty: "no change matches", key: (e) => e.offset, columns: [
    { id: "from", label: "From", render: (e) => choice("from", e) },
    { id: "to", label: "To", render: (e) => choice("to", e) },
    { id: "time", label: "Time", render: (e) => h("span", { title: clock(e.time, true) }, clock(e.time, true)) },
    { id: "offset", label: "Offset", num: true, wide: true, render: (e) => grouped(e.offset) },
    { id: "epoch", label: "Epoch", num: true, wide: true, render: (e) => e.epoch },
    { id: "kind", label: "Kind", wide: true, render: (e) => pill(e.kind) },
    { id: "text", label: "Change", first: true, class: "what", render: (e) => h("span", { title: e.text }, e.text) },
  ] });
  list.node.classList.add("timeline");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Metadata log"), count), problem,
    h("div", { class: "card" }, plot.node),
    h("div", { class: "bar" }, h("div", { class: "grow" }, search), kind, until), list.node,
    card("Difference between two moments", moments, result));

  const named = (offset) => (times.has(offset) ? `${clock(times.get(offset), true)} (offset ${grouped(offset)})` : `offset ${grouped(offset)}`);

  async function compare() {
    if (from === null || to === null) return;
    try {
      const found = await get("/api/metadata/diff", { from, to });
      replace(moments, "From ", h("strong", {}, named(found.from)), " to ", h("strong", {}, named(found.to)), `: ${plural(found.total, "difference")}`);
      replace(result, found.rows.length ? [h("ul", { class: "diffs" }, found.rows.map(difference)), found.rows.length < found.total && note(`${grouped(found.total - found.rows.length)} more are not shown`, "warn")] : h("p", { class: "muted" }, "The states are equal."));
    } catch (error) { replace(result, note(error.message)); }
  }

  const update = () => load({ problem, parts: [list], level: "warn", show, request: () => {
    const time = until.value ? new Date(until.value).getTime() + 999 : undefined;
    return get("/api/metadata/log", { q: search.value.trim(), kind: kind.value, before_time: time, limit: KEEP });
  } });
  async function show(found) {
    replace(problem, found.unknown ? note(`${plural(found.unknown, "record")} of types that this console does not know`, "warn") : null);
    count.textContent = `${plural(found.total, "change")} since ${found.start_time > 0 ? clock(found.start_time, true) : `offset ${found.start}`}`;
    if (found.kinds.join() !== known.join()) {
      known = found.kinds;
      const chosen = kind.value;
      replace(kind, [["", "All kinds"], ...known.map((k) => [k, k])].map(([id, text]) => h("option", { value: id, ...(id === chosen && { selected: true }) }, text)));
    }
    times = new Map(found.entries.map((e) => [e.offset, e.time]));
    plot.update(found.series);
    const follows = to === null || to === end;
    if (from === null && found.entries.length) from = found.entries[Math.min(9, found.entries.length - 1)].offset;
    if (follows) to = found.end;
    const isNew = end !== found.end;
    end = found.end;
    list.update(found.entries);
    if (isNew && follows) await compare();
  }

  return { update, ready: update() };
}

const difference = (row) => h("li", {}, h("div", {}, pill(row.change, LEVELS[row.change]), " ", h("span", { class: "muted" }, row.kind), " ", h("span", { class: "mono" }, row.name)),
  h("div", { class: "diff" }, row.fields.map((f) => h("div", { class: "field-diff" }, h("span", { class: "muted" }, `${f.field} `),
    f.before !== null && h("span", { class: "minus" }, `− ${f.before === "" ? "none" : f.before}`), f.after !== null && h("span", { class: "plus" }, `+ ${f.after === "" ? "none" : f.after}`)))));
