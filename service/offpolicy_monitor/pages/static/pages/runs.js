/* Which runs are healthy, drifting or silent, worst first. */

import { get } from "../lib/api.js";
import { keeping, pages, remember, state } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { frame } from "../lib/frame.js";
import { glyph } from "../lib/glyphs.js";
import { follow } from "../lib/live.js";
import { ago, number } from "../lib/numbers.js";
import { defined } from "../lib/definitions.js";
import { brief, levelOf, wordOf } from "../lib/verdicts.js";
import { spark } from "../charts/spark.js";
import { failed, noRuns } from "../lib/empty.js";

/** Runs that one page shows; the filter is the service's, so that it looks at all of them. */
const MOST = 200;
/** Milliseconds after the last key before the service is asked. */
const TYPING = 150;
const chosen = new Set((state().compare ?? "").split(",").filter(Boolean));

let newest = 0;

async function show() {
  const asked = ++newest;
  const filter = find("#filter").value;
  let page;
  try {
    page = await get("v1/runs", { order: "worst", limit: MOST, q: filter || null });
  } catch (error) {
    if (asked === newest) fill(find("#rows"), failed(error));
    return;
  }
  if (asked !== newest) return;
  find("#tools").hidden = !page.runs.length && !filter;
  find("#summary").textContent = counted(page);
  if (!page.runs.length && !filter) return fill(find("#rows"), noRuns());
  fill(find("#rows"), page.runs.length ? table(page.runs) : element("p", { class: "card" }, "No run matches."));
}

function counted({ runs, next_cursor: more }) {
  const words = { critical: "critical", warn: "warning", unknown: "not judged", healthy: "healthy" };
  const count = (level) => runs.filter((run) => levelOf(run.summary) === level).length;
  const parts = Object.entries(words).map(([level, word]) => [count(level), word]).filter(([found]) => found);
  const all = `${more ? `the first ${runs.length}` : runs.length} run${runs.length === 1 ? "" : "s"}`;
  return `${all}${parts.length ? ": " : ""}${parts.map(([found, word]) => `${found} ${word}`).join(", ")}`;
}

function table(runs) {
  const heads = [["", "Compare"], ["Run"], ["Verdict"], ["Why"], [defined("Mismatch k3, nats per token", "gaps.mismatch.k3")], ["Now"], ["Step"],
    [defined("Per minute", { text: "Training steps per minute, between the first and the last of the newest ones." })], ["Last batch"]];
  const numeric = new Set([5, 6, 7, 8]);
  return element("div", { class: "card table" }, element("table", { class: "cards" },
    element("thead", {}, element("tr", {}, heads.map(([words, hidden], index) =>
      element("th", { scope: "col", class: numeric.has(index) ? "number" : null }, hidden ? element("span", { class: "sr" }, hidden) : words)))),
    element("tbody", {}, runs.map(row))));
}

function row(run) {
  const level = levelOf(run.summary);
  const values = run.spark?.values ?? [];
  const kind = run.spark?.field === "gaps.total.k3" ? "total" : "mismatch";
  const labels = Object.entries(run.labels).map(([name, value]) => element("span", { class: "chip" }, `${name} ${value}`));
  const box = element("input", { type: "checkbox", "aria-label": `Compare ${run.run}`, on: { change: () => choose(run.run, box.checked) } });
  box.checked = chosen.has(run.run);
  const since = run.last_batch_at ? (Date.now() - Date.parse(run.last_batch_at)) / 1000 : null;
  return element("tr", { class: `s-${level}` },
    element("td", { class: "pick" }, box),
    element("td", {}, element("a", { class: "runname", href: keeping(pages.run(run.run)) }, run.run), element("br"),
      element("span", { class: "chips" }, labels.length ? labels : element("span", { class: "quiet" }, run.profile))),
    element("td", { class: "verdictcell" }, element("span", { class: "line" }, glyph(level), wordOf(run.summary))),
    element("td", { class: "wide" }, element("span", { class: "quiet" }, brief(run.summary))),
    element("td", { class: "wide" }, values.length ? spark(values, kind, run.spark.limit) : "–"),
    element("td", { class: "number", data: { label: "k3" } }, number(values.at(-1)), kind === "total" && values.length ? element("span", { class: "quiet" }, " total") : null),
    element("td", { class: "number", data: { label: "step" } }, run.last_step ?? "–"),
    element("td", { class: "number", data: { label: "per minute" } }, number(run.steps_per_minute)),
    element("td", { class: "number", data: { label: "last batch" } }, since == null ? "–" : `${ago(since)} ago`));
}

function choose(name, isChosen) {
  if (isChosen) chosen.add(name);
  else chosen.delete(name);
  remember({ compare: [...chosen].join(",") });
  drawCompare();
}

function drawCompare() {
  const link = find("#compare");
  link.hidden = chosen.size < 2;
  link.textContent = `Compare ${chosen.size} runs`;
  link.href = keeping(pages.compare([...chosen]));
}

/** Half a pattern is not asked for while one types; Enter asks, since the service knows patterns that browsers do not. */
function isWhole(pattern) {
  try {
    return Boolean(new RegExp(pattern));
  } catch {
    return false;
  }
}

frame();
let due;
const filter = element("input", { type: "search", id: "filter", "data-filter": true, placeholder: "name or label, as a regular expression  /", value: state().q ?? "",
  on: { input: () => { remember({ q: filter.value }); clearTimeout(due); if (isWhole(filter.value)) due = setTimeout(show, TYPING); }, change: () => isWhole(filter.value) || show() } });
fill(find("#page"),
  element("div", { class: "section" }, element("h1", { class: "title" }, "Runs"), element("span", { class: "quiet", id: "summary", role: "status" }),
    element("a", { class: "api", href: keeping("v1/runs?order=worst") }, "GET /v1/runs?order=worst")),
  element("div", { class: "controls", id: "tools", hidden: true }, element("label", { class: "field grow" }, "Filter", filter), element("a", { id: "compare", class: "button", hidden: true })),
  element("div", { id: "rows" }));
drawCompare();
await show();
follow(null, show);
