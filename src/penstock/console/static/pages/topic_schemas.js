// The subjects of a topic's keys and values, by TopicNameStrategy.

import { get, topicPath } from "../api.js";
import { h, link, replace } from "../dom.js";
import { load, textOf } from "../states.js";
import { card } from "../ui.js";
import { draftDialog, schemaLink, subjectPath } from "./schemas.js";

export async function mountSchemas(root, name) {
  const problem = h("div", {}), body = h("div", { class: "grid" }, h("p", { class: "muted", "data-state": "loading" }, "loading…"));
  root.append(problem, body);
  const show = ({ schemas, may_change: mayChange }) => replace(body, schemas.map((s) => card(s.part === "key" ? "Keys" : "Values", facts(s, mayChange))));
  const read = () => load({ problem, parts: [{ fail: () => replace(body) }], request: () => get(topicPath(name, "schemas")), show });
  return { ready: read(), key: (e) => { if (e.key === "r") read(); } };
}

function facts(s, mayChange) {
  if (s.gap) return h("p", { class: "muted", "data-state": s.gap.state }, textOf(s.gap));
  if (s.version === null) {
    return [h("p", { class: "muted", "data-state": "empty" }, "there is no subject ", h("span", { class: "mono" }, s.subject)),
      mayChange && h("button", { on: { click: () => draftDialog({ subject: s.subject }) } }, `Register ${s.part} schema`)];
  }
  return h("dl", { class: "facts" }, [["Subject", link(subjectPath(s.subject), s.subject)], ["Newest version", String(s.version)], ["Type", s.type], ["Schema id", schemaLink(s.id, String(s.id))]]
    .map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
}
