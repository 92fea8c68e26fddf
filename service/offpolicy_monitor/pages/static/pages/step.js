/* Everything about one step: how large the log-ratios are, of which tokens, where they stand, and which shards, engines or
   labels differ. */

import { aRun, get, getOrNull } from "../lib/api.js";
import { keeping, pages, remember, root, run, state } from "../lib/address.js";
import { labelWords } from "../lib/buckets.js";
import { defined } from "../lib/definitions.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame, keys } from "../lib/frame.js";
import { number, percent } from "../lib/numbers.js";
import { histogram } from "../charts/histogram.js";
import { bars } from "../charts/bars.js";
import { density } from "../charts/density.js";
import { swatch } from "../charts/lines.js";

const GAPS = ["mismatch", "staleness", "total"];
/** Figures of a gap, in the order that they are read: its path inside the gap, how it is shown. */
const FIGURES = [
  ["k3", number], ["k1", number], ["log_ratio_std", number], ["abs_log_ratio_max", number], ["ratio_mean", (value) => number(value, 4)],
  ["chi2", number], ["ess", percent], ["tail_fraction", percent], ["exact_fraction", percent], ["probability_diff_mean", number], ["sequence.geometric_ratio_std", number],
];
/** Breakdowns with their words; labels come after them, by name. */
const DIMENSIONS = [
  ["mu_probability", "By the engine's probability of the token"], ["position", "By position in the sequence"], ["length", "By length of the sequence"],
  ["advantage_sign", "By sign of the advantage"], ["lag", "By policy versions since sampling"], ["turn", "By turn"], ["shard", "By shard"],
];

/** What is compared with the engine, by gap. */
const COMPARED = { mismatch: "π_old, recomputed", total: "π, current policy" };

const at = (figures, path) => path.split(".").reduce((node, key) => node?.[key], figures);
const step = () => Number(location.pathname.split("/").at(-1));
const host = find("#page");

async function show() {
  const minibatch = state().minibatch ?? null;
  try {
    if (!(await aRun(run()))) return void fill(host, noSteps(run()));
    const found = await get(`v1/runs/${run()}/steps/${step()}`, { minibatch });
    const distributions = await getOrNull(`v1/runs/${run()}/steps/${step()}/histograms`, { minibatch });
    draw(found, distributions);
  } catch (error) {
    fill(host, failed(error));
  }
}

function draw(found, distributions) {
  const gaps = GAPS.filter((gap) => found.gaps[gap]?.tokens);
  const path = `v1/runs/${run()}/steps/${found.step}?minibatch=${found.minibatch}`;
  fill(host,
    element("div", { class: "runhead" }, element("h1", { class: "title" }, `Step ${found.step}`), element("span", { class: "meta" }, facts(found).map((fact) => element("span", {}, fact))),
      found.minibatches.length > 1 && minibatches(found), element("a", { class: "api", href: root() + path }, `GET /${path}`)),
    element("div", { class: "section" }, element("h2", {}, "How large are the log-ratios?"), element("span", { class: "quiet" }, "tokens by log-ratio, signed log axis, share of the tokens")),
    element("div", { class: "card" }, distributions && gaps.length ? gaps.map((gap) => histogram(gap, distributions.gaps[gap]?.log_ratio)) : element("p", { class: "quiet" }, "No tokens to count.")),
    densities(found, distributions),
    element("div", { class: "section" }, element("h2", {}, "The gaps in figures")),
    element("div", { class: "card table" }, figures(found, gaps)),
    breakdowns(found, gaps),
    element("p", { class: "section" }, element("a", { href: keeping(`${pages.worst(run())}?step=${found.step}`) }, "Worst sequences of this step"), " ", element("a", { href: keeping(`${pages.run(run())}?step=${found.step}`) }, "In the run")));
}

const facts = (found) => [
  `${number(found.tokens)} tokens`, `${number(found.sequences)} sequences`, `${found.received_shards} of ${found.shards} shard${found.shards === 1 ? "" : "s"}`,
  found.verdict && `verdict ${found.verdict}`, found.policy_version != null && `policy version ${found.policy_version}`,
  found.attempt > 0 && `attempt ${found.attempt}`, found.excluded_tokens.nonfinite > 0 && `${number(found.excluded_tokens.nonfinite)} tokens not finite`,
].filter(Boolean);

function minibatches(found) {
  const select = element("select", { "aria-label": "Gradient step", on: { change: () => { remember({ minibatch: select.value }); show(); } } },
    found.minibatches.map((index) => element("option", { value: index }, `gradient step ${index}`)));
  select.value = found.minibatch;
  return select;
}

/** One gap of those that begin at μ; which, the address says. */
function densities(found, distributions) {
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

function figures(found, gaps) {
  const head = element("tr", {}, element("th", { scope: "col" }, "Figure"), gaps.map((gap) => element("th", { scope: "col", class: "number" }, swatch(gap), ` ${gap}`)));
  const rows = FIGURES.filter(([path]) => gaps.some((gap) => at(found.gaps[gap], path) != null));
  return element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, rows.map(([path, shown]) => element("tr", {},
    element("th", { scope: "row" }, defined(path, `gaps.${gaps[0]}.${path}`)),
    gaps.map((gap) => element("td", { class: "number", data: { label: gap } }, shown(at(found.gaps[gap], path))))))));
}

function breakdowns(found, gaps) {
  const words = new Map(DIMENSIONS);
  const names = [...words.keys(), ...Object.keys(found.breakdowns).filter((name) => !words.has(name))].filter((name) => Object.keys(found.breakdowns[name] ?? {}).length > 1);
  if (!names.length) return null;
  const shown = gaps.includes("mismatch") ? ["mismatch", "staleness"].filter((gap) => gaps.includes(gap)) : gaps.slice(0, 1);
  return [
    element("div", { class: "section" }, element("h2", {}, "Where is the gap?"), element("span", { class: "quiet" }, "k3 in nats per token of each group, log axis from its smallest")),
    element("div", { class: "two" }, names.map((name) => group(words.get(name) ?? labelWords(name), bars(name, found.breakdowns[name], shown)))),
  ];
}

const group = (title, chart) => element("section", { class: "card", "aria-label": title }, element("h3", {}, title), chart);

frame();
const go = (by) => { location.href = new URL(keeping(pages.step(run(), Math.max(0, step() + by))), location.href); };
keys({
  "ArrowLeft ArrowRight": { text: "step before, after", act: (event) => go(event.key === "ArrowLeft" ? -1 : 1) },
  "Escape": { text: "back to the run", act: () => { location.href = new URL(keeping(`${pages.run(run())}?step=${step()}`), location.href); } },
});
await show();
