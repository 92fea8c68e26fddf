/* Groups of tokens with a bar for each gap: how large k3 is in each, and how many tokens it has. */

import { bucketWords, inOrder } from "../lib/buckets.js";
import { element } from "../lib/dom.js";
import { number } from "../lib/numbers.js";

/** The least that a bar shows of its width: the smallest value of the chart. */
const LEAST = 0.06;

/** `groups`: {bucket: {gaps: {gap: {k3, tokens}}}} of a dimension; `gaps`: those that are drawn. */
export function bars(dimension, groups, gaps) {
  const rows = inOrder(groups);
  const values = rows.flatMap(([, { gaps: found }]) => gaps.map((gap) => found[gap]?.k3)).filter((value) => value > 0);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const size = (value) => (value > 0 ? LEAST + (1 - LEAST) * (high > low ? Math.log(value / low) / Math.log(high / low) : 1) : 0);
  const bar = (gap, value) => element("span", { class: "bar-row" },
    element("span", { class: `bar-track g-${gap}` }, element("i", { style: { width: `${size(value) * 100}%` } })), element("b", {}, number(value)));
  return element("table", { class: "bars" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Group"), element("th", { scope: "col" }, gaps.join(", "), " k3"), element("th", { scope: "col", class: "number" }, "Tokens"))),
    element("tbody", {}, rows.map(([name, { gaps: found }]) => element("tr", {},
      element("th", { scope: "row" }, bucketWords(dimension, name)),
      element("td", { class: "wide" }, gaps.map((gap) => bar(gap, found[gap]?.k3))),
      element("td", { class: "number", data: { label: "tokens" } }, number(found[gaps[0]]?.tokens))))));
}
