// What a page knows of a part: it is loading, refused, unknown or known. Only what is known can be empty or zero.
// The server says why a part is missing or incomplete: {state: "refused" | "unknown", reason}, or null.

import { h, plural, replace, short } from "./dom.js";

export const LOADING = { state: "loading", reason: "" };
const TEXTS = {
  loading: () => "loading…",
  refused: (reason) => `not allowed: ${reason}`,
  unknown: (reason) => `not known: ${reason}`,
};

export const textOf = (gap) => TEXTS[gap.state](gap.reason);
export const gapOf = (error) => ({ state: error.status === 403 ? "refused" : "unknown", reason: error.message });

// A value with its gap: "–" if it is missing, "≥ 5" if it is incomplete. A gap never turns into a zero.
export function known(value, gap, format) {
  if (value === null || value === undefined) {
    const why = gap ?? { state: "unknown", reason: "there is no value yet" };
    return h("span", { class: "muted", "data-state": why.state, title: textOf(why) }, why.state === "loading" ? "…" : "–");
  }
  return gap ? h("span", { title: `at least: ${gap.reason}` }, "≥\u00a0", format(value)) : format(value);
}

// A value that is exact wherever it is known; `why` is the reason where it is not.
export const exact = (value, why, format) => known(value, value === null || value === undefined ? why : null, format);

// The lag of a group: from the first record where the group has committed no offset.
export function shownLag(g) {
  const text = known(g.lag, g.lag === null ? g.gap ?? { state: "unknown", reason: "the group has committed no offset" } : g.lag_exact ? null : { state: "unknown", reason: "some offsets are not known" }, short);
  return g.uncommitted ? h("span", { title: `${plural(g.uncommitted, "partition")} without a committed offset: counted from the first record` }, text, "*") : text;
}

// A list of lines, or why there is none.
export function listOr(rows, gap, empty, line) {
  if (rows?.length) return [rows.map(line), gap && h("p", { class: "muted", "data-state": gap.state }, `incomplete: ${gap.reason}`)];
  return h("p", { class: "muted", "data-state": gap ? gap.state : "empty" }, gap ? textOf(gap) : empty);
}

// Reads the parts of a page. If the request fails, each part shows why, and keeps what it has shown before.
export async function load({ problem, parts = [], request, show, level = "bad" }) {
  let found;
  try {
    found = await request();
  } catch (error) {
    replace(problem, h("p", { class: `note ${level}`, role: "alert" }, error.message));
    for (const part of parts) part.fail(gapOf(error));
    return null;
  }
  replace(problem);
  await show(found);
  return found;
}
