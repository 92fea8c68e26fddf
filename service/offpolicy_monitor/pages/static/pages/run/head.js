/* Which run this is. */

import { element, fill, find } from "../../lib/dom.js";
import { number } from "../../lib/numbers.js";
import { smoothChoice } from "../../charts/smooth.js";

export function drawHead(host, { name, about, steps, values }) {
  const last = (field) => values[field]?.at(-1);
  const labels = Object.entries(about.labels).map(([label, value]) => `${label} ${value}`);
  const attempt = last("attempt");
  const facts = [
    about.profile,
    labels.join(", "),
    steps.length && `step ${steps.at(-1)}`,
    last("tokens") != null && `${number(last("tokens"))} tokens per step`,
    attempt > 0 && `attempt ${attempt}`,
    about.correction && `corrected by ${about.correction}`,
  ];
  const tools = find(".paneltools", host) ?? element("span", { class: "paneltools" }, smoothChoice(), element("label", { class: "field" }, element("span", { class: "sr" }, "Show panels"), filterBox()));
  fill(host, element("h2", { class: "runtitle" }, name), element("span", { class: "meta" }, facts.filter(Boolean).map((fact) => element("span", {}, fact))), tools);
}

/** Hides the panels that do not match, but for the first. */
function filterBox() {
  const box = element("input", { type: "search", "data-filter": true, placeholder: "Filter panels  /", on: { input: () => {
    let pattern;
    try {
      pattern = new RegExp(box.value, "i");
    } catch {
      return; // half a pattern
    }
    document.querySelectorAll(".stack .panel").forEach((panel, index) => { panel.hidden = index > 0 && !pattern.test(panel.textContent); });
  } } });
  return box;
}
