/* The worst sequence of the step that is looked at, its tokens coloured by log-ratio. */

import { getOrNull, isReport } from "../../lib/api.js";
import { keeping, pages } from "../../lib/address.js";
import { element, fill } from "../../lib/dom.js";
import { number, percent } from "../../lib/numbers.js";
import { strip, tintLegend } from "../../charts/tokens.js";

/** Milliseconds that a step is pinned for before its sequence is asked for. */
const ASKED_AFTER = 150;

const NONE = "No sequence differs in this step, or its worst ones are not kept.";
const LEFT_OUT = "This report has the worst sequences of its newest step and of the step where it began.";

/** {step, found}: the worst sequence of a step, found null where there is none or it cannot be had. */
export async function worstAt(run, step) {
  return { step, found: await getOrNull(`v1/runs/${run}/worst`, { from: step, to: step, limit: 1 }).catch(() => null) };
}

/** `data.worst` is that of the newest step; of another one it is asked for. */
export class WorstOf {
  constructor(host, board, data) {
    Object.assign(this, { host, board, data, shown: null, due: null });
    board.onMove((index, hovering) => !hovering && this.look(board.steps[index]));
  }

  update(data) {
    this.data = data;
  }

  look(step) {
    if (step === this.shown) return;
    this.shown = step;
    clearTimeout(this.due);
    this.due = setTimeout(() => this.read(step), this.host.childElementCount ? ASKED_AFTER : 0);
  }

  async read(step) {
    const { found } = this.data.worst?.step === step ? this.data.worst : await worstAt(this.data.name, step);
    if (step !== this.shown) return;
    const gap = this.data.values["gaps.mismatch.k3"] ? (this.data.verdict.half === "staleness" ? "staleness" : "mismatch") : "total";
    const title = element("div", { class: "section" }, element("h2", {}, `Worst sequence by ${gap}`), element("span", { class: "quiet" }, `step ${step}`),
      element("a", { class: "api", href: keeping(pages.worst(this.data.name)) }, "All of them"));
    fill(this.host, title, found?.sequences.length ? this.card(found.sequences[0], gap) : element("p", { class: "card quiet" }, !found && isReport ? LEFT_OUT : NONE));
  }

  card(sequence, gap) {
    const figures = sequence.gaps[gap];
    return element("div", { class: "card" }, element("header", {},
      element("b", {}, `Sequence ${sequence.id ?? sequence.index}`), element("span", { class: "quiet" }, `${sequence.tokens} tokens`),
      figures && element("span", {}, `largest |d| ${number(figures.abs_log_ratio_max)} nats`),
      figures?.k3_share != null && element("span", {}, `${percent(figures.k3_share)} of the step's ${gap} k3`), tintLegend(gap)),
      strip(sequence, gap));
  }
}
