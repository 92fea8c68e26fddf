/* Which step this is, what it came to, and the way to the steps beside it. */

import { keeping, pages, remember, root, run } from "../../lib/address.js";
import { element } from "../../lib/dom.js";
import { LEVEL, glyph } from "../../lib/glyphs.js";
import { number } from "../../lib/numbers.js";

const WORDS = { accept: "Accept: no rule fires", warn: "Warn", skip: "Skip" };
const RANK = { critical: 0, warning: 1, info: 2 };

/** The page of a step `by` steps away. */
export const beside = (step, by) => keeping(pages.step(run(), Math.max(0, step + by)));

/** `again` draws the page anew. */
export function head(found, again) {
  const path = `v1/runs/${run()}/steps/${found.step}?minibatch=${found.minibatch}`;
  const way = (by, words, arrow) => element("a", { class: "button", href: beside(found.step, by), "aria-label": words }, arrow);
  return [
    element("div", { class: "runhead" }, element("h1", { class: "title" }, `Step ${found.step}`),
      element("span", { class: "ways" }, found.step > 0 ? way(-1, "Step before", "←") : null, way(1, "Step after", "→")),
      element("span", { class: "meta" }, facts(found).map((fact) => element("span", {}, fact))),
      found.minibatches.length > 1 && minibatches(found, again), element("a", { class: "api", href: root() + path }, `GET /${path}`)),
    verdict(found),
  ];
}

/** What the rules say of the step, each by its worst severity. */
function verdict({ verdict: said, alerts }) {
  const level = LEVEL[said] ?? "unknown";
  const fired = new Map();
  for (const { alert, severity } of alerts ?? []) if (!fired.has(alert) || RANK[severity] < RANK[fired.get(alert)]) fired.set(alert, severity);
  const rules = [...fired].sort((a, b) => RANK[a[1]] - RANK[b[1]]);
  return element("p", { class: `card rules s-${level}` }, element("b", { class: "verdictcell line" }, glyph(level), WORDS[said] ?? "Not judged yet"),
    rules.map(([alert, severity]) => element("span", { class: `line s-${LEVEL[severity]}` }, glyph(LEVEL[severity]), element("a", { href: `${root()}runbook#${alert}`, "aria-label": `${alert}, ${severity}: runbook` }, alert))));
}

const facts = (found) => [
  `${number(found.tokens)} tokens`, `${number(found.sequences)} sequences`, `${found.received_shards} of ${found.shards} shard${found.shards === 1 ? "" : "s"}`,
  found.policy_version != null && `policy version ${found.policy_version}`,
  found.attempt > 0 && `attempt ${found.attempt}`, found.excluded_tokens.nonfinite > 0 && `${number(found.excluded_tokens.nonfinite)} tokens not finite`,
].filter(Boolean);

function minibatches(found, again) {
  const select = element("select", { "aria-label": "Gradient step", on: { change: () => { remember({ minibatch: select.value }); again(); } } },
    found.minibatches.map((index) => element("option", { value: index }, `gradient step ${index}`)));
  select.value = found.minibatch;
  return select;
}
