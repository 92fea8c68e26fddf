/* The keys that move through the steps of a board. */

import { keys } from "../lib/frame.js";
import { smoothKey } from "./smooth.js";

/** How much narrower the range is after one key. */
const CLOSER = 2;

/** Listen for them; `more`: those of the page itself, as keys() has them. */
export function boardKeys(board, more = {}) {
  const by = (event) => (event.shiftKey ? 10 : 1);
  const zoom = (factor) => {
    const [low, high] = board.range;
    const half = ((high - low) * factor) / 2;
    const [first, last] = board.full;
    const middle = Math.max(first + half, Math.min(last - half, board.steps[board.pinned]));
    board.zoom(2 * half >= last - first ? board.full : [middle - half, middle + half]);
  };
  keys({
    "ArrowLeft ArrowRight": { text: "step back, forward (Shift: ten)", act: (event) => board.pin(board.pinned + (event.key === "ArrowLeft" ? -by(event) : by(event))) },
    "Home End": { text: "first, last step", act: (event) => board.pin(event.key === "Home" ? 0 : board.steps.length - 1) },
    "+ -": { text: "closer to this step, further away (also drag over a plot)", act: (event) => zoom(event.key === "+" ? 1 / CLOSER : CLOSER) },
    "0": { text: "all steps (also double-click)", act: () => board.zoom(board.full) },
    ...smoothKey,
    ...more,
  });
}
