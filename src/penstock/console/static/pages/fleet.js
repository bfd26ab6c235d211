// The GPU fleet: a heat map by host, the details of one GPU, alerts with their evidence.

import { get } from "../api.js";
import { ago, clock, grouped, h, link, plural, replace } from "../dom.js";
import { chart } from "../plots.js";
import { card, input, note, pill, select, stat } from "../ui.js";

const METRICS = {
  gpu_util_percent: ["Utilization", 100, "%"], memory_used_share: ["Memory", 1, ""], power_w: ["Power", 700, "W"], temperature_c: ["Temperature", 95, "°C"],
};
const STATES = { idle_occupied: ["allocated and idle", "bad"], fake_busy: ["busy in name only", "bad"], silent: ["silent", "warn"], unknown: ["unknown", ""], busy: ["busy", "good"], idle: ["idle", ""] };
const SEVERITY = { critical: "bad", warning: "warn", info: "" };
const shownValue = (metric, v) => (v === null || v === undefined ? "–" : metric === "memory_used_share" ? `${Math.round(v * 100)} %` : `${Math.round(v)} ${METRICS[metric][2]}`);

export async function mount(root, context) {
  return context.parts.length ? mountGpu(root, context.parts[0]) : mountFleet(root);
}

async function mountFleet(root) {
  const metric = select(Object.entries(METRICS).map(([id, [label]]) => [id, label]), "gpu_util_percent", { "aria-label": "Metric", on: { change: draw } });
  const search = input({ type: "search", placeholder: "Host, workload or GPU", "aria-label": "Host, workload or GPU", "data-search": true, on: { input: draw } });
  const problem = h("div", {}), stats = h("div", { class: "stats" }), map = h("div", { class: "fleet" }), alerts = h("ul", { class: "events alerts" }), newest = h("span", { class: "muted" });
  root.append(h("div", { class: "page-head" }, h("h1", {}, "GPU fleet"), newest, h("div", { class: "right" }, search, metric)), problem, stats,
    h("section", { class: "card", "aria-label": "Heat map" }, legend(), map), card("Alerts", alerts));
  let found = null;

  function draw() {
    if (!found) return;
    const wanted = search.value.trim().toLowerCase();
    const shown = found.items.filter((g) => `${g.gpu_id} ${g.hostname} ${g.workload} ${g.pod}`.toLowerCase().includes(wanted));
    const hosts = new Map();
    for (const g of shown) hosts.set(g.hostname ?? "unknown host", [...(hosts.get(g.hostname ?? "unknown host") ?? []), g]);
    replace(map, [...hosts].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).map(([host, gpus]) => h("div", { class: "host" }, h("span", { class: "mono" }, host), h("div", { class: "cells" }, gpus.sort((a, b) => a.gpu_id.localeCompare(b.gpu_id)).map((g) => tile(g, metric.value))))));
    if (!shown.length) replace(map, h("p", { class: "muted" }, found.items.length ? "no GPU matches" : "No sample has been written yet. The pipeline needs some seconds after its start."));
  }

  async function update() {
    try {
      found = await get("/api/fleet");
      replace(problem);
    } catch (error) {
      replace(problem, note(error.message, "warn"));
      if (!found) replace(map, h("p", { class: "muted" }, "The telemetry API starts after the first batch of the pipeline. This page reads it again every 3 seconds."));
      return;
    }
    const open = found.alerts.filter((a) => a.state === "open");
    const busy = found.items.filter((g) => g.gpu_util_percent !== null);
    const mean = busy.length ? busy.reduce((sum, g) => sum + g.gpu_util_percent, 0) / busy.length : null;
    const powers = found.items.map((g) => g.power_w ?? null).filter((w) => w !== null);
    const power = powers.length ? `${(powers.reduce((sum, w) => sum + w, 0) / 1000).toFixed(1)} kW` : "–";
    newest.textContent = found.newest_sample ? `newest sample ${ago((Date.now() - Date.parse(found.newest_sample)) / 1000)}` : "";
    replace(stats, stat("GPUs", grouped(found.items.length), `${new Set(found.items.map((g) => g.hostname)).size} hosts`), stat("Utilization", mean === null ? "–" : `${Math.round(mean)} %`, "mean"),
      stat("Power", power, "now"), stat("Wasted", grouped((found.gpus.idle_occupied ?? 0) + (found.gpus.fake_busy ?? 0)), "allocated, not used", (found.gpus.idle_occupied ?? 0) + (found.gpus.fake_busy ?? 0) ? "warn" : ""),
      stat("Silent", grouped(found.gpus.silent ?? 0), "no new sample", found.gpus.silent ? "warn" : ""), stat("Open alerts", grouped(open.length), `${grouped(open.filter((a) => a.severity === "critical").length)} critical`, open.some((a) => a.severity === "critical") ? "bad" : ""));
    draw();
    replace(alerts, found.alerts.length ? [...open, ...found.alerts.filter((a) => a.state !== "open")].slice(0, 60).map(alertLine) : h("li", { class: "dim" }, h("span", {}, "no alert was raised")));
  }
  await update();
  const timer = setInterval(update, 3000);
  return { destroy: () => clearInterval(timer) };
}

function tile(g, metric) {
  const value = g[metric], share = value === null || value === undefined ? null : Math.min(1, value / METRICS[metric][1]);
  const [state, level] = STATES[g.state] ?? [g.state, ""];
  const text = `${g.gpu_id}: ${state}, ${METRICS[metric][0].toLowerCase()} ${shownValue(metric, value)}${g.workload ? `, ${g.workload}` : ""}${g.findings.length ? `, ${g.findings.join(", ")}` : ""}`;
  const node = h("a", { class: `tile ${level} ${g.findings.length ? "found" : ""}`, href: `#/fleet/${encodeURIComponent(g.gpu_id)}`, title: `${text}${g.evidence ? `\n${g.evidence}` : ""}`, "aria-label": text });
  if (share !== null) node.style.setProperty("--share", `${Math.round(share * 100)}%`);
  else node.classList.add("none");
  return node;
}

const legend = () => h("div", { class: "legend" }, h("span", {}, "0"), h("i", { class: "ramp" }), h("span", {}, "max"), h("span", {}, h("i", { class: "tile bad sample" }), "wasted"), h("span", {}, h("i", { class: "tile warn sample" }), "silent"), h("span", {}, h("i", { class: "tile found sample" }), "hot, throttled or faulty"));

const alertLine = (a) => h("li", { class: a.state === "open" ? SEVERITY[a.severity] || "dim" : "dim" },
  h("div", {}, h("div", {}, pill(a.state === "open" ? a.severity : "resolved", a.state === "open" ? SEVERITY[a.severity] : ""), " ", h("strong", {}, a.rule.replaceAll("_", " ")), " ", a.subject.startsWith("GPU-") ? link(`fleet/${encodeURIComponent(a.subject)}`, a.subject) : h("span", { class: "mono" }, a.subject), a.hostname ? h("span", { class: "muted" }, ` on ${a.hostname}`) : ""),
    a.evidence && h("div", {}, a.evidence), a.action && h("div", { class: "muted" }, a.action)), h("time", { title: clock(Date.parse(a.since), true) }, ago((Date.now() - Date.parse(a.since)) / 1000)));

async function mountGpu(root, id) {
  const problem = h("div", {}), facts = h("div", { class: "stats" }), plots = h("div", { class: "grid" }), own = h("ul", { class: "events alerts" }), charts = new Map();
  root.append(h("div", { class: "page-head" }, h("span", { class: "crumb" }, link("fleet", "GPU fleet"), " / "), h("h1", { class: "mono" }, id)), problem, facts, plots, card("Alerts of this GPU and its host", own));
  async function update() {
    try {
      const [fleet, gpu] = await Promise.all([get("/api/fleet"), get(`/api/fleet/${encodeURIComponent(id)}`, { minutes: 15 })]);
      replace(problem);
      const g = fleet.items.find((x) => x.gpu_id === id);
      if (g) replace(facts, stat("State", pill(...(STATES[g.state] ?? [g.state, ""])), g.evidence ?? ""), stat("Host", h("span", { class: "mono" }, g.hostname ?? "–")), stat("Workload", g.workload ?? "–", g.pod ?? ""), stat("Model", g.model ?? "–"), ...Object.keys(METRICS).map((m) => stat(METRICS[m][0], shownValue(m, g[m]))));
      for (const { metric, unit, points } of gpu.series) {
        if (!charts.has(metric)) { const c = chart({ label: `${metric} (${unit})` }); charts.set(metric, c); plots.append(h("div", { class: "card" }, c.node)); }
        charts.get(metric).update(points);
      }
      const found = fleet.alerts.filter((a) => a.subject === id || (g && a.subject === g.hostname));
      replace(own, found.length ? found.map(alertLine) : h("li", { class: "dim" }, h("span", {}, plural(0, "alert"))));
    } catch (error) { replace(problem, note(error.message, "warn")); }
  }
  await update();
  const timer = setInterval(update, 3000);
  return { destroy: () => clearInterval(timer) };
}
