/* What causes the mismatch: hypotheses, best first, with their evidence and what to try. */

import { aRun, get } from "../lib/api.js";
import { keeping, pages, root, run, state } from "../lib/address.js";
import { defined } from "../lib/definitions.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { follow } from "../lib/live.js";
import { number } from "../lib/numbers.js";

/** A score from which a cause is believed. */
const BELIEVED = 0.5;
const host = find("#page");

async function show() {
  const { from, to } = state();
  const range = { from: from ?? null, to: to ?? null };
  try {
    if (!(await aRun(run()))) return void fill(host, noSteps(run()));
    const [found, verdict] = await Promise.all([get(`v1/runs/${run()}/diagnosis`, range), get(`v1/runs/${run()}/verdict`)]);
    draw(found, verdict);
  } catch (error) {
    fill(host, failed(error));
  }
}

function draw({ hypotheses, steps }, verdict) {
  const path = `v1/runs/${run()}/diagnosis`;
  const believed = hypotheses.filter(({ score }) => score >= BELIEVED);
  fill(host,
    element("div", { class: "section" }, element("h1", { class: "title" }, "What causes the mismatch?"),
      steps.length ? element("span", { class: "quiet" }, `steps ${steps[0]} to ${steps[1]}, merged`) : null, element("a", { class: "api", href: root() + path }, `GET /${path}`)),
    hypotheses.length ? null : element("p", { class: "card" }, steps.length ? "Nothing to explain." : "No step is complete yet, so there is nothing to look at. It needs sampling_logprobs and old_logprobs."),
    believed.map((one) => card(one, true, one.since_step ?? (one.name === verdict.cause ? verdict.since_step : null))),
    hypotheses.length > believed.length ? element("div", { class: "section" }, element("h2", {}, "What it is not, or not clearly")) : null,
    hypotheses.slice(believed.length).map((one) => card(one, false, null)));
}

/** `since`: the step from which the run is off for this cause, where the service says so. */
function card({ name, title, score, summary, evidence, try: toTry }, isBelieved, since) {
  return element("section", { class: "card", "aria-label": title ?? name },
    element("header", { class: "hypothesis" }, element(isBelieved ? "h2" : "h3", {}, title ?? name),
      element("span", { class: "meter wide-meter", role: "img", "aria-label": `score ${number(score)}, believed from ${BELIEVED}` }, element("i", { style: { width: `${score * 100}%` } })),
      element("b", {}, defined(number(score), { text: `Score: share of the mismatch that this explains, from 0 to 1; believed from ${BELIEVED} on.` })),
      since == null ? null : element("a", { href: keeping(`${pages.run(run())}?step=${since}`) }, `since step ${since}`)),
    element("p", {}, summary),
    isBelieved && toTry?.length ? element("ol", {}, toTry.map((one) => element("li", {}, one))) : null,
    Object.keys(evidence).length ? element("dl", { class: "facts" }, Object.entries(evidence).flatMap(([figure, value]) => [
      element("dt", {}, defined(figure, figure)), element("dd", {}, typeof value === "number" ? number(value, 3) : String(value))])) : null);
}

frame();
await show();
follow(run(), show);
