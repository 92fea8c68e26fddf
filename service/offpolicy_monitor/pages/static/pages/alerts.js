/* What fires, since which step, and what to do: open ones first, then what is over. */

import { get } from "../lib/api.js";
import { keeping, pages, remember, root, state } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { failed } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { LEVEL, glyph } from "../lib/glyphs.js";
import { follow } from "../lib/live.js";
import { ago, number } from "../lib/numbers.js";

const MOST = 200;
/** Breaches of one rule this many steps apart are shown as one. */
const APART = 5;
const RANK = { critical: 0, warning: 1, info: 2 };
const SHOWN = { active: "Open", pending: "Pending", resolved: "Over" };

const host = find("#page");

async function show() {
  const asked = state();
  try {
    const { alerts, next_cursor: more } = await get("v1/alerts", { run: asked.run || null, state: asked.state || null, merge: APART, limit: MOST });
    draw(alerts, more, asked);
  } catch (error) {
    fill(find("#rows"), failed(error));
  }
}

function draw(alerts, more, asked) {
  const pattern = matcher(find("#filter").value);
  const shown = alerts.filter((alert) => pattern.test(`${alert.alert} ${alert.run} ${alert.severity}`));
  const open = shown.filter(({ state: now }) => now === "active").length;
  find("#summary").textContent = `${open} open${more ? `, of the newest ${MOST}` : ""}${asked.run ? `, of ${asked.run}` : ""}`;
  if (!shown.length) return fill(find("#rows"), element("p", { class: "card" }, alerts.length ? "No alert matches." : "No rule has fired."));
  const sorted = [...shown].sort((a, b) => order(a) - order(b) || (b.since_step ?? 0) - (a.since_step ?? 0));
  fill(find("#rows"), element("div", { class: "card table" }, element("table", {},
    element("thead", {}, element("tr", {}, ["Alert", "Run", "What it says", "From step", "To", "Peak", "Threshold", "State"].map((words) => element("th", { scope: "col" }, words)))),
    element("tbody", {}, sorted.map(row)))));
}

const order = ({ state: now, severity }) => ["active", "pending", "resolved"].indexOf(now) * 10 + RANK[severity];

function row(alert) {
  const level = LEVEL[alert.severity];
  const at = alert.since_step == null ? pages.run(alert.run) : `${pages.run(alert.run)}?step=${alert.since_step}`;
  const until = alert.resolved_at ? `, ${ago((Date.now() - Date.parse(alert.resolved_at)) / 1000)} ago` : "";
  return element("tr", { class: `s-${level}` },
    element("td", { class: "verdictcell" }, element("span", { class: "line" }, glyph(level), element("a", { href: `${root()}runbook#${alert.alert}` }, alert.alert))),
    element("td", {}, element("a", { class: "runname", href: keeping(at) }, alert.run)),
    element("td", { class: "wide" }, element("span", { class: "quiet" }, alert.summary)),
    element("td", { class: "number", data: { label: "from step" } }, alert.since_step ?? "–"),
    element("td", { class: "number", data: { label: "to" } }, alert.state === "resolved" ? alert.last_step ?? "–" : "now"),
    element("td", { class: "number", data: { label: "peak" } }, number(alert.peak ?? alert.value)),
    element("td", { class: "number", data: { label: "threshold" } }, number(alert.threshold)),
    element("td", {}, `${SHOWN[alert.state]}${until}`));
}

function matcher(text) {
  try {
    return new RegExp(text, "i");
  } catch {
    return /(?:)/; // half a pattern
  }
}

frame();
const filter = element("input", { type: "search", id: "filter", "data-filter": true, placeholder: "alert, run or severity  /", value: state().q ?? "", on: { input: () => { remember({ q: filter.value }); show(); } } });
const select = element("select", { on: { change: () => { remember({ state: select.value }); show(); } } }, [["", "All"], ["active", "Open"], ["pending", "Pending"], ["resolved", "Over"]].map(([value, words]) => element("option", { value }, words)));
select.value = state().state ?? "";
fill(host,
  element("div", { class: "section" }, element("h1", { class: "title" }, "Alerts"), element("span", { class: "quiet", id: "summary", role: "status" }), element("a", { class: "api", href: `${root()}v1/alerts` }, "GET /v1/alerts")),
  element("div", { class: "controls" }, element("label", { class: "field" }, "State", select), element("label", { class: "field grow" }, "Filter", filter), state().run ? element("a", { href: `${root()}alerts` }, "Of all runs") : null),
  element("div", { id: "rows" }));
await show();
follow(state().run ?? null, show);
