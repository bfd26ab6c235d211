// Requests to the console's own server, and its events. No request leaves it.

export class Failure extends Error {
  constructor(status, name, message) {
    super(message);
    this.status = status;
    this.name = name;
  }
}

async function send(method, path, body) {
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
