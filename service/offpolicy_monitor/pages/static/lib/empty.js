/* What stands where there is nothing to show yet: why, and what to do. */

import { element } from "./dom.js";
import { root } from "./address.js";

const service = () => new URL(root(), location.href).href.replace(/\/$/, "");

/** How a batch comes here: the two lines of Python, and one of curl that posts a small batch. */
function howTo(run) {
  const body = '{"step": 0, "sampling_logprobs": [[-0.5, -1.25]], "old_logprobs": [[-0.5, -1.5]], "logprobs": [[-0.75, -1.5]], "advantages": [0.5]}';
  return [
    element("p", {}, "In a trainer, two lines:"),
    element("pre", { tabindex: "0" }, `monitor = Monitor("${service()}", run="${run}")\nmonitor.log(step, sampling_logprobs=mu, old_logprobs=old, logprobs=new, mask=mask)`),
    element("p", {}, "Or from here, one small batch:"),
    element("pre", { tabindex: "0", id: "curl" }, `curl -X POST ${service()}/v1/runs/${run}/batches -H 'Content-Type: application/json' -d '${body}'`),
  ];
}

/** Nobody has posted. */
export function noRuns() {
  return element("div", { class: "card" },
    element("h2", {}, "No trainer has posted yet"), howTo("my-run"),
    element("p", {}, "Or watch a real training run: ", element("code", {}, "offpolicy-monitor demo"), ". This page changes by itself."));
}

/** The service's own words for why there is no answer. */
export function failed(error) {
  const isAway = !("status" in error);
  return element("div", { class: "card", role: "alert" },
    element("h2", {}, isAway ? "The service does not answer" : "There is no answer"),
    element("p", {}, isAway ? "What it acknowledged is stored. This page goes on by itself once it is back." : sentence(error.message)),
    (error.errors ?? []).map(({ field, message }) => element("p", { class: "quiet" }, `${field}: ${message}`)));
}

const sentence = (text) => text.replace(/^./, (letter) => letter.toUpperCase()).replace(/[^.]$/, "$&.");

/** A run that nobody has posted to. */
export function noSteps(name) {
  return element("div", { class: "card" },
    element("h2", {}, `There is no run ${name} yet`),
    element("p", {}, "Its trainer has posted nothing, or the run was deleted. Post a batch and it is here at once."), howTo(name),
    element("p", {}, element("a", { href: root() }, "All runs")));
}
