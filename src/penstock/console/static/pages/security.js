// Users, ACLs and roles, and the reason of a decision.

import { get, post, remove } from "../api.js";
import { grouped, h, plural, replace } from "../dom.js";
import { listOr, load } from "../states.js";
import { card, dialog, field, guarded, input, note, pill, select, table, toast } from "../ui.js";

const RESOURCES = [["topic", "Topic"], ["group", "Group"], ["cluster", "Cluster"], ["transactional_id", "Transactional id"]];

export async function mount(root) {
  let found = null;
  const problem = h("div", {}), state = h("div", {}), answer = h("div", { role: "status" });
  const search = input({ type: "search", placeholder: "Search ACLs", "aria-label": "Search ACLs", "data-search": true, on: { input: draw } });
  const acls = table({ label: "ACLs", sortBy: "principal", empty: "there are no ACLs", columns: [
    { id: "permission", label: "Permission", sort: (a) => a.permission, render: (a) => pill(a.permission, a.permission === "deny" ? "bad" : "good") },
    { id: "principal", label: "Principal", first: true, sort: (a) => a.principal, render: (a) => a.principal },
    { id: "operation", label: "Operation", sort: (a) => a.operation, render: (a) => a.operation },
    { id: "resource", label: "Resource", sort: (a) => `${a.resource}${a.name}`, render: (a) => [h("span", { class: "muted" }, `${a.resource} `), h("span", { class: "mono" }, a.pattern === "prefixed" ? `${a.name}…` : a.name)] },
    { id: "host", label: "Host", wide: true, sort: (a) => a.host, render: (a) => a.host },
    { id: "remove", label: "", render: (a) => guarded("alter", h("button", { class: "ghost", "aria-label": `Remove the ACL of ${a.principal}`, on: { click: () => removeAcl(a) } }, "Remove")) },
  ] });
  const users = table({ label: "Users", sortBy: "user", empty: "no SCRAM user is stored", columns: [
    { id: "user", label: "User", first: true, sort: (u) => u.user, render: (u) => u.user },
    { id: "mechanism", label: "Mechanism", render: (u) => u.mechanism },
    { id: "iterations", label: "Iterations", num: true, wide: true, render: (u) => grouped(u.iterations) },
    { id: "remove", label: "", render: (u) => guarded("alter", h("span", {}, h("button", { class: "ghost", "aria-label": `Remove ${u.user}`, on: { click: () => removeUser(u) } }, "Remove"), h("button", { class: "ghost", "aria-label": `Revoke ${u.user}`, on: { click: () => revokeUser(u.user) } }, "Revoke"))) },
  ] });
  const roles = h("div", {}), roleList = { fail: (gap) => replace(roles, listOr(null, gap, "No role has members.")) }, roleButton = h("button", { hidden: true, on: { click: addMember } }, "Add to role");
  root.append(h("div", { class: "page-head" }, h("h1", {}, "Security"), guarded("alter", h("div", { class: "right" }, roleButton, h("button", { on: { click: () => revokeUser("") } }, "Revoke user"), h("button", { on: { click: addUser } }, "Set password"), h("button", { class: "primary", on: { click: addAcl } }, "Add ACL")))),
    problem, state, card("Why was this denied?", question(), answer), h("section", { class: "card", "aria-label": "ACLs" }, h("div", { class: "page-head" }, h("h2", {}, "ACLs"), h("div", { class: "right" }, search)), acls.node),
    h("div", { class: "grid" }, card("Users", users.node), card("Roles", roles)));

  function question() {
    const principal = input({ required: true, placeholder: "User:alice" }), resource = select(RESOURCES, "topic", { on: { change: fillOperations } }), name = input({ placeholder: "orders" }), host = input({ placeholder: "127.0.0.1" });
    const operation = select([], "");
    function fillOperations() { const known = found?.operations?.[resource.value] ?? ["read", "write", "describe"]; replace(operation, known.filter((o) => o !== "all").map((o) => h("option", { value: o }, o))); name.disabled = resource.value === "cluster"; }
    question.fill = fillOperations;
    return h("form", { class: "bar", "aria-label": "Why was this denied?", on: { submit: async (e) => {
      e.preventDefault();
      try {
        const d = await post("/api/why", { principal: principal.value, operation: operation.value, resource: resource.value, name: name.value, host: host.value });
        replace(answer, h("div", { class: `health ${d.allowed ? "good" : "bad"}` },
          h("div", {}, h("strong", {}, `${d.allowed ? "Allowed" : "Denied"}: ${d.reason}`), d.acl && h("div", { class: "mono" }, `${d.acl.permission} ${d.acl.principal} ${d.acl.operation} on ${d.acl.resource} ${d.acl.name}${d.acl.pattern === "prefixed" ? "*" : ""} from ${d.acl.host}`),
            h("div", { class: "muted" }, `considered: ${d.principals.join(", ")}`), !d.enforced && h("div", { class: "warn" }, "The brokers have no authorizer: every request is allowed now."))));
      } catch (error) { replace(answer, note(error.message)); }
    } } }, field("Principal", principal), field("Operation", operation), field("Resource", resource), h("div", { class: "grow" }, field("Name", name)), field("Host", host), h("button", { type: "submit", class: "primary" }, "Explain"));
  }

  function addAcl() {
    const principal = input({ required: true, placeholder: "User:alice or Role:ops" }), permission = select([["allow", "Allow"], ["deny", "Deny"]], "allow"), resource = select(RESOURCES, "topic", { on: { change: fillOps } });
    const operation = select([], ""), name = input({ placeholder: "orders, or * for all" }), pattern = select([["literal", "This name"], ["prefixed", "Names that begin with it"]], "literal"), host = input({ value: "*" });
    function fillOps() { replace(operation, (found?.operations?.[resource.value] ?? ["all", "read", "write"]).map((o) => h("option", { value: o }, o))); name.disabled = resource.value === "cluster"; }
    dialog({ title: "Add ACL", action: "Add", body: [h("div", { class: "row" }, field("Permission", permission), field("Principal", principal)), h("div", { class: "row" }, field("Resource", resource), field("Operation", operation)),
      h("div", { class: "row" }, field("Name", name), field("Match", pattern)), field("Host", host)],
      submit: async () => { await post("/api/acls", { permission: permission.value, principal: principal.value, resource: resource.value, operation: operation.value, name: name.value, pattern: pattern.value, host: host.value }); toast("The ACL was added"); await update(); } });
    fillOps();
  }

  function addUser() {
    const user = input({ required: true }), password = input({ type: "password", required: true, autocomplete: "new-password" }), mechanism = select(found?.mechanisms ?? [["", "The default"]], found?.mechanisms?.[0] ?? "");
    dialog({ title: "Set the password of a user", action: "Save", body: [field("User", user), field("Password", password, "only keys that are derived from it are sent to the brokers"), field("Mechanism", mechanism)],
      submit: async () => { await post("/api/users", { user: user.value, password: password.value, ...(mechanism.value && { mechanism: mechanism.value }) }); toast(`The password of ${user.value} was set`); await update(); } });
  }

  function revokeUser(name) {
    const user = input({ required: true, value: name, placeholder: "alice, or CN=alice,O=acme" });
    dialog({ title: "Revoke a user", action: "End all access", danger: true, body: [field("User to revoke", user, "all its passwords are removed, and its connections to all brokers are closed")],
      submit: async () => { const { removed } = await post("/api/users/revoke", { user: user.value }); toast(removed.length ? `${user.value} was revoked` : `The connections of ${user.value} were closed. A certificate, a token or a password of a config file lets it connect again.`); await update(); } });
  }

  const roleMember = (role, member) => h("div", { class: "member" }, h("span", { class: "mono" }, member), " ", guarded("alter", h("button", { class: "ghost", "aria-label": `Remove ${member} from ${role}`, on: { click: () => removeMember(role, member) } }, "Remove")));

  function addMember() {
    const role = input({ required: true, autofocus: true, placeholder: "ops" }), member = input({ required: true, placeholder: "User:alice" });
    dialog({ title: "Add a member to a role", action: "Add", body: [field("Role", role, "ACLs name it as Role:NAME; the first member creates it"), field("Member", member)],
      submit: async () => { await post("/api/roles", { role: role.value, member: member.value }); toast(`${member.value} has the role ${role.value}`); await update(); } });
  }

  const removeMember = (role, member) => dialog({ title: `Remove ${member} from ${role}`, action: "Remove", danger: true, body: h("p", {}, `${member} loses what the ACLs of Role:${role} allow.`),
    submit: async () => { await remove("/api/roles", { role, member }); toast(`${member} was removed from ${role}`); await update(); } });
  const removeAcl = (a) => dialog({ title: "Remove ACL", action: "Remove", danger: true, body: h("p", { class: "mono" }, `${a.permission} ${a.principal} ${a.operation} on ${a.resource} ${a.name}`),
    submit: async () => { await remove("/api/acls", a); toast("The ACL was removed"); await update(); } });
  const removeUser = (u) => dialog({ title: `Remove ${u.user}`, action: "Remove", danger: true, body: h("p", {}, `${u.user} can no longer log in with ${u.mechanism}.`),
    submit: async () => { await remove("/api/users", { user: u.user, mechanism: u.mechanism }); toast(`${u.user} was removed`); await update(); } });

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    if (!found) return;
    acls.update(found.acls && found.acls.filter((a) => `${a.principal} ${a.operation} ${a.resource} ${a.name}`.toLowerCase().includes(wanted)), found.acls_gap);
  }

  const update = () => load({ problem, parts: [acls, users, roleList], request: () => get("/api/security"), show });
  function show(answer) {
    found = answer;
    const off = found.authorizer && !found.authorizer["authorizer.class.name"];
    replace(state, off ? note("The brokers have no authorizer: everyone may do everything. ACLs have no effect.", "warn") : null);
    draw();
    users.update(found.users, found.users_gap);
    question.fill();
    roleButton.hidden = found.roles === null;
    if (found.roles === null && !found.roles_gap) replace(roles, h("p", { class: "muted" }, "This cluster has no roles."));
    else if (found.roles && Object.keys(found.roles).length) replace(roles, h("dl", { class: "facts" }, Object.entries(found.roles).map(([role, members]) => [h("dt", {}, role), h("dd", {}, members.map((m) => roleMember(role, m)))])));
    else roleList.fail(found.roles_gap);
  }
  return { ready: update() };
}
