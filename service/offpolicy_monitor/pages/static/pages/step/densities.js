/* Tokens by both of their probabilities, of one gap at a time. */

import { remember, run, state } from "../../lib/address.js";
import { defined } from "../../lib/definitions.js";
import { element, fill } from "../../lib/dom.js";
import { density } from "../../charts/density.js";

/** What is compared with the engine, by gap. */
const COMPARED = { mismatch: "π_old, recomputed", total: "π, current policy" };

/** One gap of those that begin at μ; which, the address says. */
export function densities(found, distributions) {
  const known = Object.keys(distributions?.densities ?? {});
  const card = element("div", { class: "card" });
  const drawn = () => {
    const gap = known.includes(state().gap) ? state().gap : known[0];
    const choice = element("select", { on: { change: () => { remember({ gap: choice.value === known[0] ? null : choice.value }); drawn().querySelector("select").focus(); } } },
      known.map((name) => element("option", { value: name, selected: name === gap }, COMPARED[name])));
    return fill(card, known.length > 1 && element("label", { class: "field" }, element("span", { class: "nowrap" }, "Engine against"), choice), density(gap, distributions.densities[gap], 1 - found.gaps[gap].tail_fraction));
  };
  if (known.length) drawn();
  else fill(card, element("p", { class: "quiet" }, uncounted(found, distributions)));
  return [
    element("div", { class: "section" }, element("h2", {}, "Do engine and trainer agree on each token?"),
      element("span", { class: "quiet" }, defined("tokens by both of their probabilities", { text: "On both axes −log p in halves of powers of two, on a log axis, so that probabilities near 1 are told apart.", call: `/v1/runs/${run()}/steps/${found.step}/histograms` }))),
    card,
  ];
}

/** Why there is no density. */
function uncounted(found, distributions) {
  if (!distributions) return "The histograms of this step are gone: of old steps figures are kept.";
  if (!found.tokens) return "No tokens to count.";
  if (!found.gaps.mismatch && !found.gaps.total) return "Needs the engine's log-probs of the tokens: send sampling_logprobs too.";
  if (!found.gaps.mismatch?.tokens && !found.gaps.total?.tokens) return "No token has a finite log-prob in both.";
  return "Some shard of this step was counted by a release that did not count this, in a trainer or here. Steps that today's release counts have it.";
}
