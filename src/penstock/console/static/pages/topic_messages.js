// Messages: browse by offset, time, key and partition; live tail; filters; produce; download.
// The query is in the address, so that a view can be bookmarked and shared.

import { anyTopicRights, get, listen, params, post, topicPath } from "../api.js";
import { bytes, clock, grouped, h, plural, replace } from "../dom.js";
import { LOADING, gapOf } from "../states.js";
import { dialog, field, guarded, input, note, pill, select, table, toast } from "../ui.js";

// Rows that a live tail keeps, and those that wait while it is paused.
const TAIL_ROWS = 1000;
const ORIGINS = [["newest", "Newest"], ["oldest", "Oldest"], ["offset", "Offset"], ["time", "Time"]];
const DEAD_LETTER = ["__dlq.errors.", "__connect.errors.", "kafka_dlt-"];
const FORMATS = [["auto", "Auto"], ["json", "JSON"], ["text", "Text"], ["bytes", "Bytes"]];

export async function mountMessages(root, name, context) {
  const q = context.query;
  let rows = [], page = null, tail = null, opened = null, turn = 0;

  // -- controls
  const origin = select(ORIGINS, q.get("from") ?? "newest", { on: { change: () => { place(); } } });
  const offset = input({ inputmode: "numeric", pattern: "\\d{1,19}", size: 12, placeholder: "0", value: q.get("offset") ?? "" });
  const time = input({ type: "datetime-local", step: "0.001", value: localTime(q.get("time")) });
  const partition = input({ inputmode: "numeric", pattern: "\\d*", size: 5, placeholder: "all", value: q.get("partition") ?? "" });
  const key = input({ size: 12, placeholder: "any", value: q.get("key") ?? "" });
  const filter = input({ placeholder: 'value.user = "ada" and offset > 100, or any text', "data-search": true, value: q.get("filter") ?? "", list: "recent-filters" });
  const format = select(FORMATS, q.get("format") ?? "auto");
  const isolation = select([["committed", "Committed"], ["uncommitted", "All"]], q.get("isolation") ?? "committed");
  const limit = select(["25", "50", "100", "500"], q.get("limit") ?? "50");
  const live = h("button", { type: "button", "aria-pressed": "false", on: { click: toggleTail } }, "Live");
  const pause = h("button", { type: "button", hidden: true, "aria-pressed": "false", on: { click: () => tail?.turn() } }, "Pause");
  const letters = h("button", { type: "button", hidden: true, on: { click: () => redriveDialog(name, query()) } }, "Send letters back");
  const download = h("a", { class: "button", download: "" }, "Download");
  const offsetField = field("Offset", offset), timeField = field("Time", time);
  const form = h("form", { class: "bar", "aria-label": "Query", on: { submit: (e) => { e.preventDefault(); go(); } } },
    field("From", origin), offsetField, timeField, field("Partition", partition), field("Key", key),
    h("div", { class: "grow" }, field("Filter", filter)), field("Format", format), field("Transactions", isolation), field("Limit", limit),
    h("button", { class: "primary", type: "submit" }, "Read"), live, pause, guarded("write", h("button", { type: "button", on: { click: () => produceDialog(name, null, written) } }, "Produce"), context.rights), guarded("write", h("span", {}, letters), anyTopicRights()), download);
  const recent = h("datalist", { id: "recent-filters" }, recentFilters().map((f) => h("option", { value: f })));

  // -- list and details
  const list = table({ label: "Messages", columns: COLUMNS, empty: "no message matches", onOpen: (row) => open(row), key: (m) => `${m.partition}:${m.offset}` });
  list.node.classList.add("tall");
  const status = h("span", { class: "muted", role: "status" });
  const more = h("button", { type: "button", disabled: true, on: { click: goOn } }, "More");
  const problem = h("div", {});
  const drawer = h("aside", { class: "drawer", "aria-label": "Message", hidden: true });
  const browser = h("div", { class: "browser" }, h("div", { class: "list" }, problem, list.node, h("div", { class: "bar" }, more, status)), drawer);
  root.append(form, recent, browser);
  place();

  function place() {
    offsetField.hidden = origin.value !== "offset";
    timeField.hidden = origin.value !== "time";
  }

  function query() {
    return {
      from: origin.value, offset: origin.value === "offset" ? offset.value.trim() || "0" : "",
      time: origin.value === "time" && time.value ? String(new Date(time.value).getTime()) : "",
      partition: partition.value.trim(), key: key.value, filter: filter.value.trim(),
      format: format.value === "auto" ? "" : format.value, isolation: isolation.value === "committed" ? "" : isolation.value, limit: limit.value,
    };
  }

  function go() {
    remember(filter.value.trim());
    history.replaceState(null, "", `#/topics/${encodeURIComponent(name)}/messages?${params(query())}`);
    stopTail();
    return read();
  }

  async function read() {
    const own = (turn += 1);
    status.textContent = "reading…";
    if (!rows.length) list.update([], LOADING);
    const wanted = query();
    download.href = `${topicPath(name, "export")}?${params({ ...wanted, limit: 10000 })}`;
    try {
      const found = await get(topicPath(name, "messages"), wanted);
      if (own !== turn) return;
      page = found;
      rows = newestFirst(found) ? found.messages.reverse() : found.messages;
      replace(problem, missing(found));
      shown();
    } catch (error) {
      if (own !== turn) return;
      rows = [];
      page = null;
      shown(gapOf(error));
      replace(problem, note(error.message));
    }
  }

  async function goOn() {
    if (!page) return;
    more.disabled = true;
    try {
      const found = await get(topicPath(name, "messages"), { ...query(), cursor: page.cursor, direction: page.direction });
      page = { ...found, scanned: page.scanned + found.scanned, scanned_bytes: page.scanned_bytes + found.scanned_bytes };
      rows = [...rows, ...(newestFirst(found) ? found.messages.reverse() : found.messages)];
      replace(problem, missing(found));
      shown();
    } catch (error) {
      replace(problem, note(error.message));
      more.disabled = false;
    }
  }

  function shown(gap = null) {
    list.update(rows, gap);
    letters.hidden = !rows.some(originOf);
    more.disabled = !page || page.complete;
    more.textContent = page?.direction === "newer" ? "Newer messages" : "Older messages";
    if (!page) { status.textContent = ""; return; }
    const large = page.oversized ? `; ${grouped(page.oversized)} batches are too large to be searched` : "";
    const why = page.limited ? "; the search has reached its limit, go on for more" : page.complete ? "; that is all" : "";
    status.textContent = `${grouped(rows.length)} shown, ${grouped(page.scanned)} read (${bytes(page.scanned_bytes)})${large}${why}`;
  }

  // -- live tail
  function toggleTail() { if (tail) stopTail(); else startTail(); }

  function startTail() {
    turn += 1;
    rows = [];
    page = null;
    shown(LOADING);
    live.setAttribute("aria-pressed", "true");
    const { partition: p, key: k, filter: f } = query();
    tail = liveTail(`${topicPath(name, "tail")}?${params({ partition: p, key: k, filter: f })}`, {
      draw: (found, text, errors) => {
        if (found) { rows = found; list.update(rows); }
        status.textContent = text;
        replace(problem, errors.length ? note(errors.join("; "), "warn") : null);
      },
      paused: (on) => { pause.setAttribute("aria-pressed", String(on)); pause.textContent = on ? "Go on" : "Pause"; },
    });
    pause.hidden = false;
  }

  function stopTail() {
    tail?.close();
    tail = null;
    pause.hidden = true;
    live.setAttribute("aria-pressed", "false");
  }

  // A message that was written here appears: by the tail, or because the page reads again.
  function written(topic) { if (topic === name && !tail) read(); }

  // -- one message
  async function open(row, wanted = format.value) {
    opened = row;
    drawer.hidden = false;
    browser.classList.add("open");
    replace(drawer, h("div", { class: "part muted" }, "reading…"));
    let m;
    try {
      m = await get(topicPath(name, "messages", row.partition, row.offset), { format: wanted });
    } catch (error) {
      if (opened === row) replace(drawer, detailHead(row), h("div", { class: "part" }, note(error.message)));
      return;
    }
    if (opened !== row) return;
    const raw = (part) => `${topicPath(name, "messages", m.partition, m.offset, "raw")}?part=${part}`;
    const formats = select(FORMATS, wanted, { "aria-label": "Format", on: { change: (e) => open(row, e.target.value) } });
    replace(drawer, detailHead(m),
      h("div", { class: "part" }, h("dl", { class: "facts" },
        h("dt", {}, "Timestamp"), h("dd", {}, m.timestamp ? `${clock(m.timestamp_ms, true)} (${m.timestamp})` : "none"),
        m.trace_id && [h("dt", {}, "Trace"), h("dd", {}, trace(m.trace_id))],
        ["key", "value"].map((part) => m[part].schema_id && [h("dt", {}, part === "key" ? "Schema of the key" : "Schema"), h("dd", {}, schemaOf(m[part]))]))),
      content("Key", m.key, raw("key")), content("Value", m.value, raw("value"), m.tombstone, formats),
      m.headers.length ? h("div", { class: "part" }, h("h3", {}, "Headers"), h("table", {}, h("tbody", {}, m.headers.map((x) => h("tr", {}, h("th", { scope: "row", class: "mono" }, x.name), h("td", { class: "mono" }, shortText(x.value)))))))
        : h("div", { class: "part muted" }, "no headers"),
      guarded("write", h("div", { class: "part bar" }, h("button", { type: "button", on: { click: () => resendDialog(name, m, written) } }, originOf(m) ? "Send back…" : "Send again…"),
        h("button", { type: "button", on: { click: () => produceDialog(name, m, written) } }, "Edit and send…")), anyTopicRights()));
  }

  const detailHead = (m) => h("header", {}, h("strong", { class: "mono" }, `${m.partition} : ${m.offset}`), m.tombstone && pill("tombstone", "bad"),
    h("span", { class: "right" }, h("button", { class: "ghost", "aria-label": "Previous message", on: { click: () => step(-1) } }, "↑"),
      h("button", { class: "ghost", "aria-label": "Next message", on: { click: () => step(1) } }, "↓"),
      h("button", { class: "ghost", "aria-label": "Close the message", on: { click: close } }, "✕")));

  const schemaOf = (part) => {
    const text = part.schema ?? `${part.schema_id}, if its first byte is that of a serializer`;
    return context.session.registry ? h("a", { href: `#/schemas?id=${part.schema_id}` }, text) : text;
  };

  const trace = (id) => {
    const template = context.session.trace_url;
    return template ? h("a", { class: "mono", href: template.replace("{trace_id}", id), target: "_blank", rel: "noreferrer" }, id)
      : h("a", { class: "mono", href: `#/topics/${encodeURIComponent(name)}/messages?${params({ filter: `header.traceparent contains "${id}"` })}`, title: "Messages of this trace" }, id);
  };

  function step(by) {
    const all = list.shown, now = all.indexOf(opened), next = all[now + by];
    if (next) { list.select(now + by); open(next); }
  }

  function close() {
    opened = null;
    drawer.hidden = true;
    browser.classList.remove("open");
    list.node.focus();
  }

  if (q.get("live") === "1") startTail(); else read();
  return {
    destroy: stopTail,
    key(e) {
      if (e.key === "Escape" && opened) close();
      else if (e.key === "r") read();
      else if (e.key === "l") toggleTail();
      else if (e.key === "p") tail?.turn();
    },
  };
}

// Messages as they are written. Any number of events makes one drawing a frame, and none while the page is hidden
// or paused. The buffer is bounded: the oldest messages go first.
export function liveTail(path, { draw, paused }) {
  let kept = [], fresh = [], errors = [], seen = 0, skipped = 0, isPaused = false, isDue = false, isClosed = false, state = "connecting…";
  const text = () => (isPaused ? `paused: ${grouped(fresh.length)} new${fresh.length >= TAIL_ROWS ? " or more" : ""} wait` : state || (!seen ? "live: waiting for new messages…" : `live: ${grouped(seen)} new${skipped ? `, ${grouped(skipped)} left out` : ""}`));
  const due = () => { if (!isDue) { isDue = true; requestAnimationFrame(frame); } };
  function frame() {
    isDue = false;
    if (isClosed) return;
    if (isPaused) { draw(null, text(), errors); return; }
    const found = fresh;
    fresh = [];
    if (found.length) kept = [...found.reverse(), ...kept].slice(0, TAIL_ROWS);
    draw(found.length || !seen ? kept : null, text(), errors);
  }
  const source = listen(path, {
    messages: (found) => {
      state = "";
      seen += found.messages.length;
      skipped += found.skipped;
      ({ errors } = found);
      fresh.push(...found.messages);
      if (fresh.length > TAIL_ROWS) fresh = fresh.slice(-TAIL_ROWS);
      due();
    },
  }, (on) => { state = on ? state : "connecting again…"; due(); });
  due();
  return {
    close() { source.close(); isClosed = true; },
    turn() { isPaused = !isPaused; paused(isPaused); due(); },
  };
}

const newestFirst = (page) => page.direction === "older";

function missing(page) {
  const lost = Object.entries(page.missing);
  return lost.length ? note(`Not read: ${lost.slice(0, 5).map(([p, why]) => `partition ${p} (${why})`).join("; ")}${lost.length > 5 ? ` and ${lost.length - 5} more` : ""}`, "warn") : null;
}

const shortText = (part) => {
  if (part.kind === "null") return h("span", { class: "nul" }, "null");
  if (part.kind === "empty") return h("span", { class: "nul" }, "empty");
  if (part.kind === "bytes") return binary(part);
  return part.text.slice(0, 400).replace(/\s+/g, " ");
};

// The first bytes of a part that is no text: eight as hexadecimal digits, and the ASCII of more beside them.
const binary = (part) => {
  const lines = part.text.split("\n"), more = (shown) => (part.size > shown ? "…" : "");
  return [part.schema_id !== undefined && pill(`schema ${part.schema_id}?`), h("span", { class: "hex" }, lines[0].slice(10, 33).trim() + more(8)),
    h("span", { class: "ascii" }, lines.slice(0, 4).map((line) => line.slice(59)).join("") + more(64))];
};

// A batch that is not unpacked, because it is too large: its sizes stand for its messages.
const uncompressed = (t) => `${t.is_exact || !t.size ? "" : ">\u00a0"}${t.size ? bytes(t.size) : "?"}`;
const tooLarge = (t) => {
  const text = `too large to show: ${grouped(t.records)} ${t.records === 1 ? "message" : "messages"}, ${bytes(t.stored)} stored, ${uncompressed(t)} uncompressed`;
  return h("span", { class: "tomb", title: `${text}, up to offset ${t.last_offset}` }, text);
};

const headerText = (x) => (x.value.kind === "bytes" ? `${bytes(x.value.size)}` : x.value.text.slice(0, 80));
const shownHeaders = (all) => (all.length ? h("span", { title: all.map((x) => `${x.name}=${headerText(x)}`).join("\n") }, `${all[0].name}=${headerText(all[0])}`, all.length > 1 && h("span", { class: "muted" }, ` +${all.length - 1}`)) : h("span", { class: "muted" }, "–"));

const COLUMNS = [
  { id: "partition", label: "Partition", num: true, wide: true, render: (m) => m.partition },
  { id: "offset", label: "Offset", num: true, first: true, render: (m) => [h("span", { class: "narrow" }, `${m.partition}:`), grouped(m.offset)] },
  { id: "timestamp", label: "Time", wide: true, render: (m) => (m.timestamp ? h("span", { title: m.timestamp }, h("span", { class: "date" }, `${clock(m.timestamp_ms, true).slice(0, 10)} `), clock(m.timestamp_ms)) : "–") },
  { id: "key", label: "Key", class: "key", render: (m) => (m.too_large ? "–" : shortText(m.key)) },
  { id: "value", label: "Value", class: "value", render: (m) => (m.too_large ? tooLarge(m.too_large) : m.tombstone ? h("span", { class: "tomb" }, "tombstone") : [m.value.schema && pill(m.value.schema), shortText(m.value)]) },
  { id: "headers", label: "Headers", wide: true, class: "headers", render: (m) => shownHeaders(m.headers) },
  { id: "size", label: "Size", num: true, wide: true, render: (m) => (m.too_large ? uncompressed(m.too_large) : bytes(m.value.size)) },
];

function content(title, part, raw, tombstone, formats) {
  const kind = tombstone ? pill("tombstone", "bad") : pill(part.kind, part.kind === "null" ? "" : "info");
  const copy = h("button", { class: "ghost", type: "button", on: { click: async () => { await navigator.clipboard.writeText(part.text); toast(`${title} copied`); } } }, "Copy");
  const empty = part.kind === "null" || part.kind === "empty";
  return h("div", { class: "part" },
    h("h3", {}, title, kind, bytes(part.size), h("span", { class: "right" }, formats, !empty && copy, !empty && h("a", { class: "button", href: raw, download: "" }, "Raw"))),
    empty ? null : h("pre", { tabindex: 0, "aria-label": title }, part.text),
    part.truncated && note("Only the beginning is shown. Raw has all bytes.", "warn"));
}

// -- produce

export function produceDialog(name, m, done) {
  const topic = input({ value: name, required: true });
  const kinds = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["null", "Null"]];
  const usable = (part) => (!part ? "text" : part.kind === "null" ? "null" : part.kind === "json" ? "json" : "text");
  const key = input({ value: m && m.key.kind !== "null" ? m.key.text : "", class: "mono" }), keyKind = select(kinds, m ? usable(m.key) : "text", { "aria-label": "Format of the key" });
  const value = h("textarea", { rows: 9, value: m && m.value.kind !== "null" ? m.value.text : "" }), valueKind = select(kinds, m ? usable(m.value) : "text", { "aria-label": "Format of the value" });
  const headers = h("textarea", { rows: 3, placeholder: "name=value", value: (m?.headers ?? []).filter((x) => !DEAD_LETTER.some((prefix) => x.name.startsWith(prefix))).map((x) => `${x.name}=${x.value.text}`).join("\n") });
  const partition = input({ inputmode: "numeric", pattern: "\\d*", placeholder: "by key" });
  const sent = h("div", { role: "status" });
  const lossy = m && [m.key, m.value].some((p) => p.kind === "bytes" || p.kind === "schema" || p.truncated);
  dialog({
    title: m ? "Edit and send" : `Produce to ${name}`, action: "Send", wide: true,
    body: [lossy && note("This message has bytes that cannot be edited as text. Send it again as it is instead.", "warn"),
      h("div", { class: "row" }, field("Topic", topic), field("Partition", partition)), h("div", { class: "row" }, field("Key", key), field("Format of the key", keyKind)),
      field("Value", value), field("Format of the value", valueKind), field("Headers, one name=value a line", headers), sent],
    submit: async () => {
      const lines = headers.value.split("\n").filter((l) => l.trim()).map((l) => { const i = l.indexOf("="); return { name: i < 0 ? l : l.slice(0, i), value: { text: i < 0 ? "" : l.slice(i + 1) } }; });
      const keyFormat = keyKind.value === "text" && !key.value ? "null" : keyKind.value;
      const at = await post(topicPath(topic.value, "messages"), { key: { text: key.value, format: keyFormat }, value: { text: value.value, format: valueKind.value }, headers: lines, partition: partition.value ? Number(partition.value) : null });
      replace(sent, note(`Written to ${topic.value}, partition ${at.partition}, offset ${at.offset}.`, "good"));
      done?.(topic.value);
      return false;
    },
  });
}

// Sends the same bytes once more: a dead letter goes back to the topic that it came from.
function resendDialog(name, m, done) {
  const topic = input({ value: originOf(m) ?? name, required: true });
  dialog({
    title: originOf(m) ? "Send back" : "Send again", action: "Send",
    body: [h("p", {}, `Key, value and headers are sent as they are${originOf(m) ? ", without the headers of the dead letter" : ""}.`), field("Topic", topic)],
    submit: async () => {
      const at = await post(topicPath(name, "messages", m.partition, m.offset, "resend"), { topic: topic.value });
      toast(`Written to ${topic.value}, partition ${at.partition}, offset ${at.offset}`);
      done?.(topic.value);
    },
  });
}

// Sends all dead letters that the query finds back, after their numbers were shown.
async function redriveDialog(name, query) {
  const to = input({ placeholder: "the topics that the letters name" }), preview = h("div", { role: "status" });
  const path = `${topicPath(name, "redrive")}?${params({ ...query, limit: "" })}`;
  let reviewed = null;
  const lines = (found) => [h("ul", {}, Object.entries(found.topics).map(([topic, n]) => h("li", {}, `${topic}: ${plural(n, "letter")}`))), found.skipped ? h("p", { class: "muted" }, `${plural(found.skipped, "message")} of the query are no dead letters`) : null,
    found.limited ? note("One request sends 1,000 letters at most. Change the query for the others.", "warn") : null];
  dialog({
    title: "Send letters back", action: "Preview", wide: true,
    body: [h("p", {}, "All dead letters that the query finds are sent to the topics that they came from, without the headers of the dead letter. The letters stay here: those that are sent twice arrive twice."), field("To another topic", to), preview],
    submit: async ({ button }) => {
      if (reviewed !== to.value) {
        const found = await post(path, { to: to.value || null, send: false });
        replace(preview, lines(found));
        reviewed = to.value;
        button.textContent = `Send ${plural(Object.values(found.topics).reduce((a, b) => a + b, 0), "letter")}`;
        return false;
      }
      const done = await post(path, { to: to.value || null, send: true });
      if (done.stopped) { replace(preview, lines(done), note(done.stopped)); reviewed = null; return false; }
      toast(`${plural(Object.values(done.topics).reduce((a, b) => a + b, 0), "letter")} sent back`);
      return true;
    },
  });
}

// The topic that a dead letter of a share group, of Kafka Connect or of Spring came from.
const originOf = (m) => m?.headers.find((x) => ["__dlq.errors.topic", "__connect.errors.topic", "kafka_dlt-original-topic"].includes(x.name))?.value.text;

// -- filters that were used before, in this browser

function recentFilters() {
  try { return JSON.parse(localStorage.getItem("filters") ?? "[]"); } catch { return []; }
}

function remember(filter) {
  if (filter) localStorage.setItem("filters", JSON.stringify([filter, ...recentFilters().filter((f) => f !== filter)].slice(0, 20)));
}

function localTime(ms) {
  if (!ms) return "";
  const t = new Date(Number(ms));
  return new Date(t.getTime() - t.getTimezoneOffset() * 60000).toISOString().slice(0, 23);
}
