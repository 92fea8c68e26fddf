/* What fires, since which step, and what to do: open ones first, each with those for which it speaks under it, then what
   is over. */

import { get } from "../lib/api.js";
import { keeping, pages, remember, root, state } from "../lib/address.js";
import { defined } from "../lib/definitions.js";
import { element, fill, find } from "../lib/dom.js";
import { failed } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { LEVEL, glyph } from "../lib/glyphs.js";
import { follow } from "../lib/live.js";
import { ago, number } from "../lib/numbers.js";
import { underRoots } from "../lib/roots.js";

const MOST = 200;
/** Breaches of one rule this many steps apart are shown as one. */
const APART = 5;
const RANK = { critical: 0, warning: 1, info: 2 };
/** Columns, and which are of numbers. */
const HEADS = [["Alert"], ["Run"], ["What it says"], ["From step", true], ["To", true], ["Peak", true], ["Threshold", true], ["State"]];
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
  const matching = alerts.filter((alert) => pattern.test(`${alert.alert} ${alert.run} ${alert.severity}`));
  const shown = folded(matching);
  const sorted = [...shown].sort((a, b) => order(a) - order(b) || (b.since_step ?? 0) - (a.since_step ?? 0));
  const rows = underRoots(sorted, (alert) => isOpen(alert) && sorted.find((other) => speaksFor(other, alert)));
  const open = rows.filter((alert) => isOpen(alert) && !alert.root).length;
  const others = rows.filter(({ root: speaker }) => speaker).length;
  find("#summary").textContent = `${open} open${others ? `, ${others} more go with ${open === 1 ? "it" : "them"}` : ""}${more ? `, of the newest ${MOST}` : ""}${asked.run ? `, of ${asked.run}` : ""}`;
  if (!shown.length) return fill(find("#rows"), element("p", { class: "card" }, alerts.length ? "No alert matches." : "No rule has fired."));
  fill(find("#rows"), element("div", { class: "card table" }, element("table", { class: "cards" },
    element("thead", {}, element("tr", {}, HEADS.map(([words, isNumber]) => element("th", { scope: "col", class: isNumber ? "number" : null }, words)))),
    element("tbody", {}, rows.flatMap((alert) => [row(alert), saying(alert)])))));
}

const isOpen = ({ state: now }) => now === "active";

/** Whether people are told of one alert instead of another. */
const speaksFor = (root, alert) => isOpen(root) && root.inhibited_by == null && root.run === alert.run && root.alert === alert.inhibited_by;

/** A rule that is critical is a warning as well: one row of the two, which says since when it warned. */
function folded(alerts) {
  const key = ({ run, alert }) => `${run} ${alert}`;
  const critical = new Map(alerts.filter((alert) => isOpen(alert) && alert.severity === "critical").map((alert) => [key(alert), alert]));
  const isFolded = (alert) => isOpen(alert) && alert.severity === "warning" && critical.has(key(alert));
  const warned = new Map(alerts.filter(isFolded).map((alert) => [key(alert), alert.since_step]));
  return alerts.filter((alert) => !isFolded(alert)).map((alert) => (critical.get(key(alert)) === alert ? { ...alert, warned: warned.get(key(alert)) } : alert));
}

const order = ({ state: now, severity }) => ["active", "pending", "resolved"].indexOf(now) * 10 + RANK[severity];

function row(alert) {
  const level = LEVEL[alert.severity];
  const { since_step: since, warned } = alert;
  const at = keeping(since == null ? pages.run(alert.run) : `${pages.run(alert.run)}?step=${since}`);
  return element("tr", { class: `s-${level}${alert.root ? " goes-with" : ""}` },
    element("td", { class: "verdictcell" }, element("span", { class: "line" }, glyph(level), element("a", { href: `${root()}runbook#${alert.alert}`, "aria-label": `${alert.alert}, ${alert.severity}: runbook` }, alert.alert))),
    element("td", {}, element("a", { class: "runname", href: at }, alert.run)),
    element("td", { class: "wide quiet" }, defined(alert.summary, { text: alert.expression, call: `/v1/alerts?run=${alert.run}&merge=${APART}` })),
    element("td", { class: "number", data: { label: "from step" } }, since == null ? "–" : element("a", { href: at }, since), warned != null && warned !== since ? element("span", { class: "quiet under" }, `warning from ${warned}`) : null),
    element("td", { class: "number", data: { label: "to" } }, alert.state === "resolved" ? alert.last_step ?? "–" : "now"),
    element("td", { class: "number", data: { label: "peak" } }, number(alert.peak ?? alert.value, 3)),
    element("td", { class: "number", data: { label: "threshold" } }, number(alert.threshold, 3)),
    element("td", {}, SHOWN[alert.state], element("span", { class: "quiet under" }, when(alert))));
}

/** What people are told of it: all that is needed to act, without the address of the page, to which its row leads. */
function saying(alert) {
  if (!isOpen(alert) || alert.inhibited_by != null || !alert.message) return null;
  return element("tr", { class: "said" }, element("td", { class: "wide", colspan: HEADS.length }, alert.message.replace(/ https?:\S+$/, "")));
}

/** When it was acted on: rules wait for some steps before they open, and for some before they are over. */
function when({ state: now, quiet_since: quiet, active_step: active, active_at: activeAt, resolved_step: resolved, resolved_at: resolvedAt, started_at: startedAt }) {
  if (now === "active" && quiet != null) return `quiet since step ${quiet}`;
  const since = (time) => `${ago((Date.now() - Date.parse(time)) / 1000)} ago`;
  const [step, time] = now === "resolved" ? [resolved, resolvedAt] : now === "active" ? [active, activeAt] : [null, startedAt];
  return [step == null ? null : `at step ${step}`, time && since(time)].filter(Boolean).join(", ");
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
