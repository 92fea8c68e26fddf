/* The gaps of a step in figures, side by side. */

import { defined } from "../../lib/definitions.js";
import { element } from "../../lib/dom.js";
import { number, percent } from "../../lib/numbers.js";
import { swatch } from "../../charts/lines.js";

const fine = (value) => number(value, 4);
/** In the order that they are read: path, words, unit, how a value is shown. */
const FIGURES = [
  ["gaps.{gap}.k3", "KL divergence, k3", "nats per token", number],
  ["gaps.{gap}.k1", "KL divergence, k1", "nats per token", number],
  ["gaps.{gap}.log_ratio_std", "Spread of log-ratios", "nats, standard deviation", number],
  ["gaps.{gap}.abs_log_ratio_max", "Largest log-ratio", "nats, absolute", number],
  ["gaps.{gap}.ratio_mean", "Mean ratio", "1 where calibrated", fine],
  ["gaps.{gap}.chi2", "Chi-square divergence", "", number],
  ["gaps.{gap}.ess", "Effective sample size", "share of the tokens", percent],
  ["gaps.{gap}.tail_fraction", "Beyond a factor of 2", "share of the tokens", percent],
  ["gaps.{gap}.exact_fraction", "Bitwise equal", "share of the tokens", percent],
  ["gaps.{gap}.probability_diff_mean", "Mean difference", "of the probabilities", number],
  ["gaps.{gap}.sequence.geometric_ratio_std", "Spread over sequences", "of their geometric ratios", number],
  ["support.{gap}.k3", "k3 on the support", "nats per token, of what the sampler chose among", number],
  ["support.{gap}.ratio_mean", "Mean ratio on the support", "1 where calibrated", fine],
  ["support.{gap}.mass_mean", "Mass of the support", "mean share", percent],
];

const of = (path, gap) => path.replace("{gap}", gap);
const at = (found, path) => path.split(".").reduce((node, key) => node?.[key], found);

/** `gaps`: those that the step has. */
export function figures(found, gaps) {
  const rows = FIGURES.filter(([path]) => gaps.some((gap) => at(found, of(path, gap)) != null));
  return element("table", { class: "plain" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Figure"), gaps.map((gap) => element("th", { scope: "col", class: "number" }, swatch(gap), " ", gap)))),
    element("tbody", {}, rows.map(([path, words, unit, shown]) => element("tr", {},
      element("th", { scope: "row" }, defined(words, of(path, gaps[0])), element("span", { class: "quiet unit" }, unit)),
      gaps.map((gap) => element("td", { class: "number" }, shown(at(found, of(path, gap)))))))));
}
