/* The sentence: state, since when, which half, the likely cause, and what to do. The words are the service's. */

import { keeping, pages, root } from "../../lib/address.js";
import { element, fill, find } from "../../lib/dom.js";
import { glyph } from "../../lib/glyphs.js";
import { number } from "../../lib/numbers.js";
import { levelOf, wordOf } from "../../lib/verdicts.js";

/** Hypotheses that are shown, and parts of the evidence of each. */
const SHOWN = 4;
const EVIDENCE = 3;

export function drawVerdict(host, { name, verdict, diagnosis, alerts }) {
  const level = levelOf(verdict);
  const wasOpen = find("details", host)?.open;
  host.className = `verdict s-${level}`;
  const open = alerts.filter((alert) => alert.state === "active" && alert.inhibited_by == null);
  const top = open.sort((a, b) => distance(a, verdict) - distance(b, verdict))[0];
  fill(host,
    element("p", { class: "state" }, glyph(level), wordOf(verdict)),
    element("h1", {}, verdict.head),
    verdict.why && element("p", { class: "why" }, verdict.why),
    verdict.action && element("p", { class: "do" }, element("b", {}, "Do"), element("span", {}, verdict.action)),
    element("div", { class: "links" },
      diagnosis?.hypotheses.length ? causes(diagnosis, wasOpen) : null,
      element("a", { href: keeping(pages.whatif(name)) }, "What each correction would mask"),
      element("a", { href: keeping(pages.worst(name)) }, "Worst sequences"),
      top && element("a", { href: `${root()}runbook#${top.alert}` }, `Runbook: ${top.alert}`),
      element("a", { class: "api", href: `${root()}v1/runs/${name}/verdict` }, "JSON")));
}

/** How far an open alert is from what the sentence says: of another half, milder, of another step. */
const distance = (alert, { half, since_step: since }) => (alert.half === half ? 0 : 4) + (alert.severity === "critical" ? 0 : 2) + (alert.since_step === since ? 0 : 1);

function causes({ hypotheses, steps }, wasOpen) {
  const first = hypotheses[0];
  const rows = hypotheses.slice(0, SHOWN).flatMap(({ title, name, score, summary, evidence }) => [
    element("span", {}, title ?? name),
    element("span", { class: "meter", role: "img", "aria-label": `score ${number(score)}, believed from 0.5` }, element("i", { style: { width: `${score * 100}%` } })),
    element("b", {}, number(score)),
    element("span", { class: "say quiet" }, summary, " ", Object.entries(evidence).slice(0, EVIDENCE).map(([figure, value]) =>
      element("span", {}, `${figure} ${typeof value === "number" ? number(value) : value} `))),
  ]);
  return element("details", { open: wasOpen },
    element("summary", {}, first.name === "noise" ? "What the diagnosis ruled out" : "Why this cause, and what else it could be"),
    element("div", { class: "evidence" }, rows),
    element("p", { class: "quiet" }, `Score: share of the mismatch that the cause explains; the dashed line is one half, from which it is believed.${steps ? ` Steps ${steps[0]} to ${steps.at(-1)}.` : ""}`));
}
