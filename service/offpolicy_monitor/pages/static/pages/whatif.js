/* What a correction would drop at other thresholds, on recorded steps: two methods side by side, with the setting to paste. */

import { aRun, get } from "../lib/api.js";
import { run } from "../lib/address.js";
import { element, fill, find } from "../lib/dom.js";
import { failed, noSteps } from "../lib/empty.js";
import { frame } from "../lib/frame.js";
import { percent } from "../lib/numbers.js";
import { swatch } from "../charts/lines.js";
import { Trial } from "./whatif/trial.js";
import { SHARES } from "./whatif/curve.js";

const host = find("#page");

async function begin() {
  const name = run();
  try {
    const about = await aRun(name);
    if (!about) return void fill(host, noSteps(name));
    const advice = get(`v1/runs/${name}/recommendations`);
    const note = element("p", { class: "controls quiet" });
    const legend = element("span", { class: "scale" }, Object.values(SHARES).map(({ kind, words }) => [swatch(kind), words]));
    const slots = ["a", "b"].map((slot) => element("section", { class: "card method", "aria-label": `Method ${slot.toUpperCase()}` }));
    fill(host,
      element("div", { class: "section" }, element("h1", { class: "title" }, "What would each threshold keep out of the loss?")),
      note,
      element("p", { class: "controls" }, legend),
      element("div", { class: "two" }, slots));
    const shown = [about.correction, ...about.compared].filter((name) => Object.hasOwn(about.whatif, name));
    const trials = slots.map((slot, index) => new Trial(slot, "ab"[index], about, advice, shown[index]));
    await Promise.all([advice.then((found) => note.replaceChildren(said(found))), ...trials.map((trial) => trial.choose())]);
  } catch (error) {
    fill(host, failed(error));
  }
}

const said = ({ steps, target }) => (steps.length ? `Recorded steps, up to 200 of them; marks on the axis are rows that run, the dotted line is what drops ${percent(target)} of the tokens.` : "No step is complete yet.");

frame();
await begin();
