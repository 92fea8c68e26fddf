/* The gaps of a step in figures, side by side. */

import { defined } from "../../lib/definitions.js";
import { element } from "../../lib/dom.js";
import { number, percent } from "../../lib/numbers.js";
import { swatch } from "../../charts/lines.js";

const fine = (value) => number(value, 4);
/** In the order that they are read: path inside the gap, words, unit, how a value is shown. */
const FIGURES = [
  ["k3", "KL divergence, k3", "nats per token", number],
  ["k1", "KL divergence, k1", "nats per token", number],
  ["log_ratio_std", "Spread of log-ratios", "nats, standard deviation", number],
  ["abs_log_ratio_max", "Largest log-ratio", "nats, absolute", number],
  ["ratio_mean", "Mean ratio", "1 where calibrated", fine],
  ["chi2", "Chi-square divergence", "", number],
  ["ess", "Effective sample size", "share of the tokens", percent],
  ["tail_fraction", "Beyond a factor of 2", "share of the tokens", percent],
  ["exact_fraction", "Bitwise equal", "share of the tokens", percent],
  ["probability_diff_mean", "Mean difference", "of the probabilities", number],
  ["sequence.geometric_ratio_std", "Spread over sequences", "of their geometric ratios", number],
];

const at = (figures, path) => path.split(".").reduce((node, key) => node?.[key], figures);

/** `gaps`: those that the step has. */
export function figures(found, gaps) {
  const rows = FIGURES.filter(([path]) => gaps.some((gap) => at(found.gaps[gap], path) != null));
  return element("table", { class: "plain" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Figure"), gaps.map((gap) => element("th", { scope: "col", class: "number" }, swatch(gap), " ", gap)))),
    element("tbody", {}, rows.map(([path, words, unit, shown]) => element("tr", {},
      element("th", { scope: "row" }, defined(words, `gaps.${gaps[0]}.${path}`), element("span", { class: "quiet unit" }, unit)),
      gaps.map((gap) => element("td", { class: "number" }, shown(at(found.gaps[gap], path))))))));
}
