/* Everything about one step: how large the log-ratios are, of which tokens, where they stand, and which shards, engines or
   labels differ. */

import { aRun, get, getOrNull } from "../lib/api.js";
import { keeping, pages, run, state } from "../lib/address.js";
import { labelWords } from "../lib/buckets.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame, keys } from "../lib/frame.js";
import { histogram } from "../charts/histogram.js";
import { bars } from "../charts/bars.js";
import { densities } from "./step/densities.js";
import { figures } from "./step/figures.js";
import { beside, head } from "./step/head.js";

const GAPS = ["mismatch", "staleness", "total"];
/** Breakdowns with their words; labels come after them, by name. */
const DIMENSIONS = [
  ["mu_probability", "By the engine's probability of the token"], ["position", "By position in the sequence"], ["length", "By length of the sequence"],
  ["advantage_sign", "By sign of the advantage"], ["lag", "By policy versions since sampling"], ["turn", "By turn"], ["shard", "By shard"],
];

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
  fill(host,
    head(found, show),
    element("div", { class: "section" }, element("h2", {}, "How large are the log-ratios?"), element("span", { class: "quiet" }, "tokens by log-ratio, signed log axis, share of the tokens")),
    element("div", { class: "card" }, distributions && gaps.length ? gaps.map((gap) => histogram(gap, distributions.gaps[gap]?.log_ratio)) : element("p", { class: "quiet" }, "No tokens to count.")),
    densities(found, distributions),
    element("div", { class: "section" }, element("h2", {}, "The gaps in figures")),
    element("div", { class: "card table" }, figures(found, gaps)),
    breakdowns(found, gaps),
    element("p", { class: "section" }, element("a", { href: keeping(`${pages.worst(run())}?step=${found.step}`) }, "Worst sequences of this step"), " ", element("a", { href: keeping(`${pages.run(run())}?step=${found.step}`) }, "In the run")));
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
const go = (by) => { location.href = new URL(beside(step(), by), location.href); };
keys({
  "ArrowLeft ArrowRight": { text: "step before, after", act: (event) => go(event.key === "ArrowLeft" ? -1 : 1) },
  "Escape": { text: "back to the run", act: () => { location.href = new URL(keeping(`${pages.run(run())}?step=${step()}`), location.href); } },
});
await show();
