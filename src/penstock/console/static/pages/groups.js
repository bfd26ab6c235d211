// Groups of all types: members, assignment, lag over time, reset with a preview.

import { get, post, remove } from "../api.js";
import { grouped, h, link, named, plural, replace } from "../dom.js";
import { chart, spark } from "../plots.js";
import { exact, load, shownLag } from "../states.js";
import { card, confirmDelete, dialog, field, guarded, input, note, pill, select, stat, table, toast } from "../ui.js";

const STATES = { Stable: "good", Empty: "", Dead: "bad", Assigning: "warn", Reconciling: "warn", PreparingRebalance: "warn", CompletingRebalance: "warn" };
const shownState = (g) => pill(g.state, STATES[g.state] ?? "");
const TYPES = { classic: "classic", consumer: "consumer", share: "share", streams: "streams" };

export async function mount(root, context) {
  return context.parts.length ? mountGroup(root, context.parts[0]) : mountList(root);
}

const LIST = [
  { id: "name", label: "Group", first: true, sort: (g) => g.name, render: (g) => link(`groups/${encodeURIComponent(g.name)}`, named(g.name)) },
  { id: "state", label: "State", sort: (g) => g.state, render: shownState },
  { id: "kind", label: "Type", sort: (g) => g.kind, render: (g) => TYPES[g.kind] ?? g.kind },
  { id: "protocol", label: "Protocol", wide: true, sort: (g) => g.protocol, render: (g) => g.protocol || "–" },
  { id: "topics", label: "Topics", num: true, wide: true, sort: (g) => g.topics, render: (g) => grouped(g.topics) },
  { id: "coordinator", label: "Coordinator", num: true, wide: true, sort: (g) => g.coordinator, render: (g) => g.coordinator },
  { id: "lag", label: "Lag", num: true, sort: (g) => g.lag, render: shownLag },
  { id: "series", label: "Lag over time", render: (g) => spark(g.series, `lag of ${g.name}`) },
];

async function mountList(root) {
  const search = input({ type: "search", placeholder: "Search groups", "aria-label": "Search groups", "data-search": true, on: { input: draw } });
  const kind = select([["", "All types"], "classic", "consumer", "share", "streams"], "", { "aria-label": "Type", on: { change: draw } });
  const count = h("span", { class: "muted", role: "status" });
  const problem = h("div", {});
  const list = table({ label: "Groups", columns: LIST, sortBy: "lag", descending: true, empty: "no group matches", key: (g) => g.name, onOpen: (g) => { location.hash = `#/groups/${encodeURIComponent(g.name)}`; } });
  list.node.classList.add("tall");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Groups"), count), h("div", { class: "bar" }, h("div", { class: "grow" }, search), kind), problem, list.node);
  let rows = null, gap = null;
  function draw() {
    if (!rows) { count.textContent = ""; list.update(null, gap); return; }
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((g) => (!kind.value || g.kind === kind.value) && g.name.toLowerCase().includes(wanted));
    count.textContent = gap && !found.length ? "" : `${gap ? "at least " : ""}${plural(found.length, "group")}`;
    list.update(found, gap);
  }
  const update = () => load({ problem, parts: [list], request: () => get("/api/groups"), show: (found) => { ({ groups: rows, gap } = found); draw(); } });
  return { update, ready: update() };
}

const NO_LEADER = { state: "unknown", reason: "the broker that leads the partition has not said its offsets" };
const OFFSETS = [
  { id: "topic", label: "Topic", first: true, sort: (o) => o.topic, render: (o) => link(`topics/${encodeURIComponent(o.topic)}`, named(o.topic)) },
  { id: "partition", label: "Partition", num: true, sort: (o) => o.partition, render: (o) => o.partition },
  { id: "committed", label: "Committed", num: true, render: (o) => (o.committed === null ? h("span", { class: "muted" }, "none") : grouped(o.committed)) },
  { id: "end", label: "Next offset", num: true, wide: true, render: (o) => exact(o.end, NO_LEADER, grouped) },
  { id: "lag", label: "Lag", num: true, sort: (o) => o.lag, render: (o) => (o.committed === null && o.lag !== null ? h("span", { title: "no committed offset: counted from the first record" }, grouped(o.lag), "*") : exact(o.lag, NO_LEADER, grouped)) },
  { id: "member", label: "Member", wide: true, sort: (o) => o.member, render: (o) => o.member ?? "–" },
];
const MEMBERS = [
  { id: "client", label: "Client", first: true, sort: (m) => m.client, render: (m) => m.client || "–" },
  { id: "host", label: "Host", wide: true, render: (m) => m.host },
  { id: "instance", label: "Instance", wide: true, render: (m) => m.instance ?? "–" },
  { id: "epoch", label: "Epoch", num: true, wide: true, render: (m) => m.epoch ?? "–" },
  { id: "assignment", label: "Assignment", render: (m) => [...m.assignment.map((a) => `${a.topic} [${a.partitions.join(",")}]`), ...Object.entries(m.tasks ?? {}).filter(([, names]) => names.length).map(([kind, names]) => `${kind} tasks ${names.join(",")}`)].join(" ") || h("span", { class: "muted" }, "none") },
  { id: "id", label: "Member id", wide: true, render: (m) => h("span", { class: "mono", title: m.id }, m.id) },
];

async function mountGroup(root, name) {
  const stats = h("div", { class: "stats" }), problem = h("div", {});
  const plot = chart({ label: "Lag, records", axis: { whole: true } });
  const offsets = table({ label: "Offsets", columns: OFFSETS, sortBy: "lag", descending: true, empty: "no offset is committed", key: (o) => `${o.topic}:${o.partition}` });
  const members = table({ label: "Members", columns: MEMBERS, empty: "the group has no members", key: (m) => m.id });
  const actions = h("div", { class: "right", hidden: true });
  let group = null, learn;
  const own = new Promise((known) => { learn = known; });
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("groups", "Groups"), " / "), h("h1", { class: "mono" }, name), actions),
    problem, stats, h("div", { class: "card" }, plot.node), card("Members", members.node), card("Offsets", offsets.node));
  replace(actions, guarded("read", h("button", { on: { click: () => group && resetDialog(group, update) } }, "Reset offsets"), own),
      guarded("delete", h("button", { on: { click: () => confirmDelete({ title: `Delete ${name}`, name, what: "The group's committed offsets are deleted. Its members would start again from their own default.", run: async () => { await remove(`/api/group?name=${encodeURIComponent(name)}`); toast(`Group ${name} was deleted`); location.hash = "#/groups"; } }) } }, "Delete"), own));
  const update = () => load({ problem, parts: [offsets, members], request: () => get("/api/group", { name }).catch(missing), show });
  function missing(error) {
    actions.hidden = error.status === 404;
    throw error;
  }
  function show(found) {
    group = found;
    learn(found.rights);
    actions.hidden = false;
    replace(stats, stat("State", shownState(group)), stat("Type", TYPES[group.kind] ?? group.kind, group.protocol ?? ""), stat("Lag", shownLag(group), group.uncommitted ? "records, * also those before the first commit" : "records"),
      stat("Members", grouped(group.members.length)), stat("Coordinator", `broker ${group.coordinator}`), group.epoch === null ? null : stat("Epoch", grouped(group.epoch)));
    offsets.node.querySelector("th[data-id=committed]").textContent = group.kind === "share" ? "Start offset" : "Committed";
    plot.update(group.series);
    members.update(group.members);
    offsets.update(group.offsets);
  }
  return { update, ready: update() };
}

function resetDialog(group, done) {
  const target = select([["earliest", "Earliest"], ["latest", "Latest"], ["offset", "Offset"], ["time", "Time"], ["shift", "Shift by"]], "earliest", { on: { change: place } });
  const number = input({ inputmode: "numeric", pattern: "-?\\d+", value: "0" });
  const time = input({ type: "datetime-local", step: "1" });
  const topics = [...new Set(group.offsets.map((o) => o.topic))];
  const topic = select([["", "All with a committed offset"], ...topics], "");
  const other = input({ placeholder: "a topic that the group has not read yet" });
  const numberField = field("Offset", number), timeField = field("Time", time), preview = h("div", {});
  function place() { numberField.hidden = !["offset", "shift"].includes(target.value); timeField.hidden = target.value !== "time"; replace(preview); reviewed = null; shown.button.textContent = "Preview"; }
  const wanted = (save) => ({ target: target.value, value: target.value === "time" ? String(new Date(time.value || Date.now()).getTime()) : number.value, topics: other.value ? [other.value] : topic.value ? [topic.value] : [], save });
  let reviewed = null;
  const shown = dialog({
    title: `Reset offsets of ${group.name}`, action: "Preview", wide: true,
    body: [group.kind === "share" ? h("p", { class: "muted" }, "The start offset of each partition changes. Records behind it are delivered to the group, also those that it has accepted before.") : null, group.members.length ? note("The group has members. Stop them first: brokers refuse to change the offsets of an active group.", "warn") : null,
      h("div", { class: "row" }, field("To", target), numberField, timeField), h("div", { class: "row" }, field("Topic", topic), field("Or another topic", other)), preview],
    submit: async ({ button }) => {
      const asked = JSON.stringify(wanted(false));
      if (reviewed !== asked) {
        const { moves } = await post(`/api/group/reset?name=${encodeURIComponent(group.name)}`, wanted(false));
        const rows = table({ label: "Changes", empty: "there is no offset to change", columns: [
          { id: "topic", label: "Topic", first: true, render: (m) => m.topic }, { id: "partition", label: "Partition", num: true, render: (m) => m.partition },
          { id: "before", label: "Now", num: true, render: (m) => grouped(m.before) }, { id: "after", label: "Then", num: true, render: (m) => h("strong", {}, grouped(m.after)) },
          { id: "change", label: "Change", num: true, render: (m) => (m.change === null ? "new" : h("span", { class: m.change.startsWith("-") ? "warn" : "" }, m.change.startsWith("-") ? `−${grouped(m.change.slice(1))}` : `+${grouped(m.change)}`)) }] });
        rows.node.style.maxHeight = "260px";
        replace(preview, rows.node);
        rows.update(moves);
        reviewed = asked;
        button.textContent = `Reset ${plural(moves.length, "offset")}`;
        return false;
      }
      await post(`/api/group/reset?name=${encodeURIComponent(group.name)}`, wanted(true));
      toast(`The offsets of ${group.name} were reset`);
      await done();
      return true;
    },
  });
  place();
}

