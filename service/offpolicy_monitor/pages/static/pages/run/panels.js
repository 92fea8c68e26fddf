/* The panels of the first screen, in the order for the eye. One that has nothing to show is left out. */

import { alertLanes } from "./alerts.js";
import { attribution, effective, gaps, masks, sent } from "./figures.js";
import { madeOf } from "./mismatch.js";
import { stepBar } from "./steps.js";

/** A panel: what it shows of the data, null for nothing; and how it is drawn, which answers how it is brought up to date. */
const PANELS = [gaps, stepBar, alertLanes, attribution, ...madeOf, masks, effective, ...sent];

/** Draw them all; `update(data)` brings them up to date, and draws anew where other panels have something to show. */
export function panels(stack, board, data) {
  let drawn = draw(stack, board, data);
  return {
    update(next) {
      if (signature(next) === drawn.signature) for (const update of drawn.updates) update(next);
      else {
        board.parts = board.parts.filter(({ host }) => !host || !stack.contains(host));
        board.listeners = board.listeners.filter((listener) => !drawn.listeners.includes(listener));
        stack.replaceChildren();
        drawn = draw(stack, board, next);
      }
    },
  };
}

const shownOf = (data) => PANELS.map((panel) => [panel, panel.shows(data)]).filter(([, shown]) => shown);
const signature = (data) => shownOf(data).map(([{ id }, shown]) => `${id}:${shown.key ?? ""}`).join(" ");

function draw(stack, board, data) {
  const before = board.listeners.length;
  const shown = shownOf(data);
  const updates = shown.map(([panel, first], index) => {
    const isLast = index === shown.length - 1;
    const update = panel.draw(stack, board, { ...first, isLast });
    return (next) => update(panel.shows(next));
  });
  return { signature: signature(data), updates, listeners: board.listeners.slice(before) };
}
