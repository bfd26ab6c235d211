// Requests to the console's own server, and its events. No request leaves it.

export class Failure extends Error {
  constructor(status, name, message) {
    super(message);
    this.status = status;
    this.name = name;
  }
}

// Rights of the user by their address, for a minute.
const RIGHTS_MS = 60000;
const allowed = new Map();

async function send(method, path, body) {
  if (path === "/api/login") allowed.clear();
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { "x-penstock-console": "1", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, "UNREACHABLE", "the console's server does not respond");
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) {
    if (response.status === 401 && path !== "/api/login") window.dispatchEvent(new Event("login-needed"));
    throw new Failure(response.status, content.error ?? "ERROR", content.message ?? `HTTP ${response.status}`);
  }
  return content;
}

// A stream that is refused is not opened again. Its session may have ended.
async function checkLogin() {
  const session = await get("/api/session").catch(() => null);
  if (session?.needs_login && !session.logged_in) window.dispatchEvent(new Event("login-needed"));
}

export const get = (path, query) => send("GET", query ? `${path}?${params(query)}` : path);
export const post = (path, body = {}) => send("POST", path, body);
export const remove = (path, body) => send("DELETE", path, body);

// What brokers allow this user, read once a minute; null if they do not say it.
function readRights(path, part) {
  const known = allowed.get(path);
  if (known && Date.now() - known.at < RIGHTS_MS) return known.found;
  const found = get(path).then((answer) => answer[part], () => null);
  allowed.set(path, { at: Date.now(), found });
  return found;
}

// On the cluster, and on at least one topic: forms that name a topic need the latter.
export const rights = () => readRights("/api/rights", "cluster");
export const anyTopicRights = () => readRights("/api/rights/topics", "topics");

export function params(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return new URLSearchParams(kept).toString();
}

export const topicPath = (name, ...rest) => ["/api/topics", encodeURIComponent(name), ...rest].join("/");

// Events of a server; `close` ends them. Browsers connect again by themselves.
export function listen(path, handlers, onState) {
  const source = new EventSource(path);
  for (const [name, run] of Object.entries(handlers)) source.addEventListener(name, (e) => run(JSON.parse(e.data)));
  source.addEventListener("open", () => onState?.(true));
  source.addEventListener("error", () => {
    onState?.(false);
    if (source.readyState === EventSource.CLOSED) checkLogin();
  });
  return source;
}
