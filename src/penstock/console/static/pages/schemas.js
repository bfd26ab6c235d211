// The schema registry: subjects, versions with their differences, compatibility, drafts, deletion.

import { get, params, post, remove } from "../api.js";
import { grouped, h, link, named, plural, replace } from "../dom.js";
import { known, load, textOf } from "../states.js";
import { card, confirmDelete, dialog, field, input, note, pill, select, table, toast } from "../ui.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
const TYPES = [["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]];
const typeName = (id) => TYPES.find(([name]) => name === id)?.[1] ?? id;
export const subjectPath = (name, version) => `schemas/${encodeURIComponent(name)}${version ? `?version=${version}` : ""}`;
export const schemaLink = (id, text = `schema ${id}`) => link(`schemas?id=${id}`, text);

export async function mount(root, context) {
  if (!context.session.registry) return unconfigured(root);
  if (context.parts.length) return mountSubject(root, context);
  return context.query.get("id") ? mountNumber(root, context.query.get("id")) : mountList(root, context);
}

function unconfigured(root) {
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Schemas")),
    h("div", { class: "note", role: "status", "data-state": "unconfigured" }, h("p", {}, "This console has no schema registry. Start it with the address of one that has Confluent's REST API, such as Apicurio or Karapace:"),
      h("pre", {}, "penstock console --schema-registry http://127.0.0.1:8081"),
      h("p", {}, "Credentials and certificates are in a file:"),
      h("pre", {}, "penstock console --schema-registry-config registry.properties")));
  return {};
}

// -- subjects

const LIST = [
  { id: "name", label: "Subject", first: true, sort: (s) => s.name, render: (s) => link(subjectPath(s.name), named(s.name)) },
  { id: "topic", label: "Topic", sort: (s) => s.topic, render: (s) => (s.topic === null ? h("span", { class: "muted" }, "–") : link(`topics/${encodeURIComponent(s.topic)}/schemas`, named(s.topic))) },
  { id: "part", label: "For", sort: (s) => s.part, render: (s) => s.part ?? "–" },
  { id: "state", label: "State", sort: (s) => s.deleted, render: (s) => s.deleted && pill("deleted", "warn") },
];

async function mountList(root, { query }) {
  const search = input({ type: "search", placeholder: "Search subjects", "aria-label": "Search subjects", "data-search": true, value: query.get("q") ?? "", on: { input: draw } });
  const deleted = h("input", { type: "checkbox", id: "deleted", on: { change: draw } });
  const count = h("span", { class: "muted", role: "status" }), problem = h("div", {}), actions = h("div", { class: "right" }), hint = h("span", { class: "muted" });
  const list = table({ label: "Subjects", columns: LIST, sortBy: "name", empty: "no subject matches, or the registry has none", key: (s) => s.name, onOpen: (s) => { location.hash = `#/${subjectPath(s.name)}`; } });
  list.node.classList.add("tall");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Schemas"), count, actions),
    h("div", { class: "bar" }, h("div", { class: "grow" }, search), h("label", { for: "deleted" }, deleted, " deleted subjects"), hint), problem, list.node);
  let rows = null;
  function draw() {
    if (!rows) return;
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((s) => (deleted.checked || !s.deleted) && s.name.toLowerCase().includes(wanted));
    count.textContent = found.length === rows.length ? plural(rows.length, "subject") : `${grouped(found.length)} of ${plural(rows.length, "subject")}`;
    list.update(found);
  }
  const read = () => load({ problem, parts: [list], request: () => get("/api/schemas"), show: (found) => {
    rows = found.subjects;
    hint.textContent = found.all ? "" : "subjects of topics that this user sees";
    replace(actions, h("span", { class: "muted" }, "Compatibility: ", known(found.level.name, found.level.gap, String)),
      found.may_change && found.level.name && h("button", { on: { click: () => levelDialog(null, found.level, read) } }, "Change"),
      found.may_change && h("button", { class: "primary", on: { click: () => draftDialog({}) } }, "Register schema"));
    draw();
  } });
  return { ready: read(), key: (e) => { if (e.key === "r") read(); } };
}

// -- one subject

async function mountSubject(root, { parts: [name], query }) {
  const body = h("div", { class: "tab-body" }, h("p", { class: "muted", "data-state": "loading" }, "loading…")), actions = h("div", { class: "right" });
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("schemas", "Schemas"), " / "), h("h1", { class: "mono" }, name), actions), body);
  const read = async () => {
    let found;
    try {
      found = await get("/api/schemas/subject", { name, version: query.get("version") });
    } catch (error) {
      replace(actions);
      replace(body, note(error.status === 403 ? `not allowed: ${error.message}` : error.message, error.status === 404 ? "warn" : "bad"));
      return;
    }
    replace(actions, found.may_change && subjectActions(found));
    show(body, found, read);
  };
  return { ready: read(), key: (e) => { if (e.key === "r") read(); } };
}

const subjectActions = (found) => [
  h("button", { class: "primary", on: { click: () => draftDialog({ subject: found.name, from: found.chosen }) } }, "Register version"),
  found.deleted ? h("button", { class: "danger", on: { click: () => deletion(found, null, true) } }, "Delete permanently")
    : h("button", { on: { click: () => deletion(found, null, false) } }, "Delete subject"),
];

function show(body, found, read) {
  const { chosen, versions } = found;
  const isDeleted = versions.some((v) => v.version === chosen.version && v.deleted);
  const numbers = versions.toReversed().map((v) => [String(v.version), `version ${v.version}${v.deleted ? " (deleted)" : ""}`]);
  const pick = select(numbers, String(chosen.version), { "aria-label": "Version", on: { change: (e) => { location.hash = `#/${subjectPath(found.name, e.target.value)}`; } } });
  const others = numbers.filter(([n]) => n !== String(chosen.version));
  const before = others.find(([n]) => Number(n) < chosen.version)?.[0] ?? "";
  const compare = select([["", "the schema itself"], ...others.map(([n, text]) => [n, `difference from ${text}`])], "", { "aria-label": "Show", on: { change: (e) => draw(e.target.value) } });
  const shown = h("div", {});
  async function draw(from) {
    if (!from) { replace(shown, text(chosen)); return; }
    try {
      const { lines } = await get("/api/schemas/difference", { name: found.name, from, to: chosen.version });
      replace(shown, difference(lines));
    } catch (error) { replace(shown, note(error.message)); }
  }
  draw("");
  const level = h("span", {}, known(found.level.name, found.level.gap, String), found.level.name && !found.level.own && h("span", { class: "muted" }, " (of all subjects)"),
    found.may_change && found.level.name && h("button", { class: "ghost", on: { click: () => levelDialog(found.name, found.level, read) } }, "Change"));
  const facts = [["Type", typeName(chosen.type)], ["Schema id", schemaLink(chosen.id, String(chosen.id))], ["Versions", plural(found.total, "version")], ["Compatibility", level],
    found.topic !== null && ["Topic", [link(`topics/${encodeURIComponent(found.topic)}`, found.topic), ` (${found.part})`]],
    ["References", chosen.references.length ? [chosen.references.map((r) => h("div", {}, h("span", { class: "mono" }, `${r.name} `), link(subjectPath(r.subject, r.version), `${r.subject} version ${r.version}`))), chosen.references_more > 0 && `and ${grouped(chosen.references_more)} more`] : "none"],
    ["Referenced by", found.referring === null ? known(null, { state: "unknown", reason: "the registry does not say it" }) : found.referring.length ? found.referring.slice(0, 50).map((id) => [schemaLink(id), " "]) : "none"]];
  replace(body, found.deleted && note("This subject is deleted. Messages with its schemas can still be read until it is deleted permanently.", "warn"),
    card("Subject", h("dl", { class: "facts" }, facts.filter(Boolean).map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]))),
    h("section", { class: "card", "aria-label": "Schema" }, h("div", { class: "page-head" }, h("h2", {}, "Schema"), pick, others.length > 0 && compare,
      before && h("button", { class: "ghost", on: { click: () => { compare.value = before; draw(before); } } }, "What changed?"),
      h("div", { class: "right" }, isDeleted && pill("deleted", "warn"), found.may_change && !found.deleted && h("button", { on: { click: () => deletion(found, chosen.version, isDeleted) } }, isDeleted ? "Delete version permanently" : "Delete version"))), shown));
}

const text = (schema) => [h("pre", { class: "schema" }, schema.text), schema.truncated && note("The schema is longer than this page shows.", "warn")];
const SIGNS = { "+": "plus", "-": "minus", "…": "muted" };
function difference(lines) {
  if (lines === null) return note("The versions are too long, or differ too much, to be compared here.", "warn");
  if (!lines.length) return h("p", { class: "muted", "data-state": "empty" }, "the versions have the same text");
  return h("div", { class: "diff schema", role: "region", "aria-label": "Difference" }, lines.map(([sign, line]) => h("div", { class: SIGNS[sign] ?? null }, `${sign} ${line}`)));
}

function deletion(found, version, permanent) {
  const what = version === null ? `subject ${found.name}` : `version ${version} of ${found.name}`;
  confirmDelete({
    title: `Delete ${what}${permanent ? " permanently" : ""}`, name: version === null ? found.name : `${found.name} ${version}`,
    what: permanent ? "The schema is removed from the registry. Messages that were written with it can no longer be decoded, by anyone. This cannot be undone."
      : "Producers can no longer use it. Consumers can still read messages that were written with it, until it is deleted permanently.",
    run: async () => {
      await remove(`/api/schemas/subject?${params({ name: found.name, version, permanent: permanent ? 1 : "" })}`);
      toast(`${what} was deleted`);
      location.hash = permanent && (version === null || found.versions.length === 1) ? "#/schemas" : `#/${subjectPath(found.name)}`;
      window.dispatchEvent(new Event("hashchange"));
    },
  });
}

function levelDialog(subject, level, done) {
  const options = subject === null ? LEVELS : [["", "that of all subjects"], ...LEVELS];
  const chosen = select(options, subject !== null && !level.own ? "" : level.name);
  dialog({
    title: subject === null ? "Compatibility of all subjects" : `Compatibility of ${subject}`, action: "Save",
    body: [field("Level", chosen), h("p", { class: "muted" }, "BACKWARD: consumers with the new schema read old messages. FORWARD: consumers with the old schema read new messages. TRANSITIVE levels count all versions, others the newest.")],
    submit: async () => { await post("/api/schemas/level", { subject, level: chosen.value || null }); toast("The compatibility was changed"); await done(); },
  });
}

// -- one schema by its number, as a message has it

async function mountNumber(root, id) {
  const body = h("div", { class: "tab-body" }, h("p", { class: "muted", "data-state": "loading" }, "loading…"));
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("schemas", "Schemas"), " / "), h("h1", {}, `Schema ${id}`)), body);
  try {
    const found = await get(`/api/schemas/ids/${encodeURIComponent(id)}`);
    const uses = found.uses.length ? found.uses.map((u) => h("div", {}, link(subjectPath(u.subject, u.version), `${u.subject} version ${u.version}`))) : "no subject";
    replace(body, card("Schema", h("dl", { class: "facts" }, [["Type", typeName(found.type)], ["Used by", [uses, found.uses_total > found.uses.length && `and ${grouped(found.uses_total - found.uses.length)} more`]]].map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])), text(found)));
  } catch (error) {
    replace(body, note(error.status === 403 ? textOf({ state: "refused", reason: error.message }) : error.message, error.status === 404 ? "warn" : "bad"));
  }
  return {};
}

// -- drafts

function parseReferences(lines) {
  return lines.split("\n").map((l) => l.trim()).filter(Boolean).map((l) => {
    const found = /^(\S+)\s+(\S+)\s+(\d{1,9})$/.exec(l);
    if (!found) throw new Error(`"${l}" is not NAME SUBJECT VERSION`);
    return { name: found[1], subject: found[2], version: Number(found[3]) };
  });
}

// The first submit checks a draft with the registry, the second one registers what was checked.
export function draftDialog({ subject, from, done }) {
  const name = input({ required: true, value: subject ?? "", autofocus: !subject });
  const kind = select(TYPES, from?.type ?? "AVRO");
  const schema = h("textarea", { rows: 14, class: "mono", required: true, spellcheck: "false" }, from?.exact ? from.text : "");
  const references = h("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "Customer customer-value 1" }, (from?.references ?? []).map((r) => `${r.name} ${r.subject} ${r.version}`).join("\n"));
  const result = h("div", { role: "status" });
  const wanted = () => ({ subject: name.value.trim(), draft: { schema: schema.value, kind: kind.value, references: parseReferences(references.value) } });
  let checked = null;
  const shown = dialog({
    title: subject ? `Register a version of ${subject}` : "Register a schema", action: "Check compatibility", wide: true,
    body: [h("div", { class: "row" }, field("Subject", name, "TOPIC-key or TOPIC-value"), field("Type", kind)), field("Schema", schema), field("References, one NAME SUBJECT VERSION a line", references), result],
    submit: async ({ button }) => {
      const body = wanted(), now = JSON.stringify(body);
      if (checked !== now) {
        replace(result, "checking…");
        let found;
        try { found = await post("/api/schemas/check", body); } catch (error) { replace(result); throw error; }
        replace(result, verdict(found));
        if (found.compatible !== false && found.known_version === null) { checked = now; button.textContent = "Register"; }
        return false;
      }
      const { id, version } = await post("/api/schemas/register", body);
      toast(`${body.subject}${version ? ` has version ${version}` : ""}, schema ${id}`);
      await done?.();
      location.hash = `#/${subjectPath(body.subject)}`;
      window.dispatchEvent(new Event("hashchange"));
      return true;
    },
  });
  const changed = () => { if (checked !== null) { checked = null; replace(result); shown.button.textContent = "Check compatibility"; } };
  for (const control of [name, kind, schema, references]) control.addEventListener("input", changed);
}

function verdict(found) {
  const level = found.level.name ?? "not known";
  if (found.known_version !== null) return note(`The subject has this schema already: version ${found.known_version}.`, "warn");
  if (found.compatible === null) return note("This is the first version of the subject.", "good");
  if (found.compatible) return note(`Compatible (${level}).`, "good");
  return [note(`Not compatible (${level}).`), h("ul", {}, found.messages.map((m) => h("li", { class: "mono" }, m)), found.more > 0 && h("li", {}, `and ${grouped(found.more)} more`))];
}
