// The frame around all pages: login, navigation, live state, theme, keys.

import { get, listen, params, post } from "./api.js";
import { ago, h, link, replace, short } from "./dom.js";
import { known } from "./states.js";
import { LEVELS, dialog, field, input, note, pill, steerFirst } from "./ui.js";

const PAGES = [
  { id: "overview", label: "Overview", key: "o" },
  { id: "topics", label: "Topics", key: "t", count: "topics" },
  { id: "groups", label: "Groups", key: "r", count: "groups" },
  { id: "topology", label: "Topology", key: "y" },
  { id: "cluster", label: "Cluster", key: "c" },
  { id: "links", label: "Links", key: "l" },
  { id: "transactions", label: "Transactions", key: "x" },
  { id: "schemas", label: "Schemas", key: "e" },
  { id: "security", label: "Security", key: "s" },
  { id: "quotas", label: "Quotas", key: "q" },
];
const FLEET = { id: "fleet", label: "GPU fleet", key: "f" };
const root = document.getElementById("app");
const state = { session: null, tick: null, connected: true, seen: 0 };
const ui = {};
let page = null, visit = 0;

window.addEventListener("login-needed", () => state.session && start());
start();

async function start() {
  theme(read("theme"));
  window.addEventListener("hashchange", show);
  document.onkeydown = keys;
  try {
    state.session = await get("/api/session");
  } catch (error) {
    replace(root, h("div", { class: "login" }, note(error.message)));
    setTimeout(start, 2000);
    return;
  }
  if (state.session.telemetry && !PAGES.includes(FLEET)) PAGES.push(FLEET);
  if (state.session.needs_login && !state.session.logged_in) login();
  else frame();
}

// Why single sign-on has failed; the console's log has the details.
const SSO_FAILED = {
  expired: "The login took too long, or was begun in another browser. Try again.",
  refused: "The provider has refused the login.",
  rejected: "The brokers have not accepted the login of the provider.",
  brokers: "No broker has checked the login. Try again later.",
  limit: "Too many logins from this address have failed. Try again later.",
  provider: "The provider of the single sign-on has not answered as it should.",
};

function login() {
  page?.destroy?.();
  page = null;
  ui.live?.close();
  const { bootstrap, passwords, sso } = state.session;
  const errors = h("div", {});
  const failed = new URLSearchParams(location.search).get("sso");
  if (failed) {
    replace(errors, note(SSO_FAILED[failed] ?? SSO_FAILED.provider));
    history.replaceState(null, "", `/${location.hash}`);
  }
  const user = input({ required: true, autocomplete: "username", autofocus: true });
  const password = input({ type: "password", required: true, autocomplete: "current-password" });
  const button = h("button", { class: sso ? "" : "primary", type: "submit" }, "Log in");
  const single = sso && h("a", { class: "button primary", href: `/sso/login?${params({ page: location.hash })}` }, `Log in with ${sso}`);
  const form = h("form", { "aria-label": "Log in", on: { submit: async (e) => {
    e.preventDefault();
    button.disabled = true;
    replace(errors);
    try {
      await post("/api/login", { user: user.value, password: password.value });
      await start();
    } catch (error) {
      replace(errors, note(error.message));
    } finally {
      button.disabled = false;
    }
  } } }, h("div", { class: "brand" }, h("img", { src: "/static/icon.svg", alt: "" }), "Penstock"),
    h("p", { class: "muted" }, "Log in as a user of the cluster at ", h("span", { class: "mono" }, bootstrap.join(", ")), ". Its ACLs decide what you see."),
    single, single && passwords && h("p", { class: "muted" }, "or with a password:"),
    passwords && [field("User", user), field("Password", password)], errors, passwords && button);
  replace(root, h("main", { class: "login", id: "main" }, form));
  if (passwords && !sso) user.focus();
}

function frame() {
  const links = PAGES.map((p) => {
    const count = h("span", { class: "count" });
    p.node = h("a", { href: `#/${p.id}` }, p.label, count);
    p.counter = count;
    return p.node;
  });
  ui.health = h("a", { href: "#/overview", class: "health-link", "aria-label": "Health" });
  ui.where = h("span", { class: "where" });
  ui.liveState = h("span", { class: "live" }, "connecting");
  ui.main = h("main", { id: "main", tabindex: -1 });
  const out = state.session.user && h("button", { class: "ghost", "aria-label": `Log out ${state.session.user}`, on: { click: logout } }, h("span", { class: "name" }, state.session.user), " · Log out");
  replace(root,
    h("header", { class: "top" }, ui.health, ui.where, h("div", { class: "right" }, ui.liveState,
      h("button", { class: "ghost", "aria-label": "Light or dark", title: "Light or dark", on: { click: nextTheme } }, "◐"),
      h("button", { class: "ghost", "aria-label": "Keys", title: "Keys (?)", on: { click: help } }, "?"), out)),
    h("div", { class: "side" }, h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/static/icon.svg", alt: "" }), "Penstock"),
      h("nav", { "aria-label": "Pages" }, links), h("div", { class: "foot mono" }, state.session.bootstrap.join(", "))),
    ui.main);
  ui.live?.close();
  ui.live = listen("/api/live", { tick }, (on) => { state.connected = on; header(); });
  clearInterval(ui.timer);
  ui.timer = setInterval(header, 1000);
  show();
}

function tick(found) {
  state.tick = found;
  // The age of the sample, not of the event: brokers that are silent send none.
  state.seen = found.age_s === null ? null : Date.now() - found.age_s * 1000;
  header();
  page?.update?.();
}

function header() {
  const t = state.tick;
  if (!ui.liveState) return;
  ui.liveState.className = `live ${state.connected && t ? "on" : state.connected ? "" : "off"}`;
  ui.liveState.textContent = !state.connected ? "disconnected" : t ? (state.seen === null ? "no answer" : ago((Date.now() - state.seen) / 1000)) : "connecting";
  if (!t) return;
  const level = t.health.level;
  replace(ui.health, pill(level, LEVELS[level]));
  ui.health.title = t.health.reasons.join("\n") || "all partitions have all their replicas";
  ui.where.textContent = t.cluster_id ?? "";
  for (const p of PAGES) if (p.count) replace(p.counter, t.totals ? known(t.totals[p.count], t.gaps?.[p.count], short) : "");
}

async function show() {
  if (!ui.main?.isConnected) return;
  const own = (visit += 1);
  const [path, query = ""] = decodeURI(location.hash.replace(/^#\/?/, "")).split("?");
  const parts = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").filter(Boolean).map(decodeURIComponent);
  const known = PAGES.find((p) => p.id === parts[0]) ?? PAGES[0];
  const context = { parts: parts.slice(1), query: new URLSearchParams(location.hash.split("?")[1] ?? ""), session: state.session, path, rawQuery: query };
  if (page?.id === known.id && page.turn?.(context)) return;
  page?.destroy?.();
  page = null;
  for (const p of PAGES) p.node[p === known ? "setAttribute" : "removeAttribute"]("aria-current", "page");
  document.title = `${known.label} · Penstock`;
  try {
    const module = await import(`./pages/${known.id}.js`);
    if (own !== visit) return;
    replace(ui.main);
    const mounted = await module.mount(ui.main, context);
    if (own !== visit) mounted?.destroy?.();
    else page = { id: known.id, ...mounted };
  } catch (error) {
    if (own === visit) replace(ui.main, note(error.message));
  }
}

async function logout() {
  const { url } = await post("/api/logout");
  if (url) { location.assign(url); return; }
  location.reload();
}

// -- theme: that of the system, unless one was chosen

function theme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  theme(next);
}

function read(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

// -- keys

let leader = 0;
function keys(e) {
  if (e.key === "Escape" && e.target.closest?.("input,textarea,select") && !e.target.closest("dialog")) e.target.blur();
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input,textarea,select,dialog")) return;
  if (Date.now() - leader < 1200) {
    const found = PAGES.find((p) => p.key === e.key);
    leader = 0;
    if (found) location.hash = `#/${found.id}`;
  } else if (e.key === "g") leader = Date.now();
  else if (e.key === "/") { const box = document.querySelector("[data-search]"); if (box) { e.preventDefault(); box.focus(); box.select?.(); } }
  else if (e.key === "?") help();
  else if (ui.main && steerFirst(ui.main, e)) e.preventDefault();
  else page?.key?.(e);
}

function help() {
  const rows = [["/", "search or filter"], ["j k", "next, previous row"], ["Enter", "open"], ["Esc", "close"], ["r", "read again"], ["l", "live tail"], ["p", "pause the live tail"],
    ...PAGES.map((p) => [`g ${p.key}`, p.label])];
  dialog({ title: "Keys", body: h("dl", { class: "facts" }, rows.map(([k, what]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, what)])) });
}

export { link };
