/* The bar of steps: one cell per step, coloured and as tall as its verdict. Click or arrow keys move the pinned step. */

import { keeping, pages, run } from "../../lib/address.js";
import { element, fill, find } from "../../lib/dom.js";
import { LEVEL } from "../../lib/glyphs.js";
import { number } from "../../lib/numbers.js";
import { colour } from "../../lib/theme.js";
import { Lane } from "../../charts/lane.js";
import { panel } from "./panel.js";

const HEIGHT = 34;
/** Share of the height by level, the worst last. */
const TALL = { unknown: 0.22, healthy: 0.38, warn: 0.68, critical: 1 };
/** Milliseconds that a step is pinned for before it is said aloud. */
const SAID_AFTER = 400;

export const stepBar = {
  id: "steps",
  shows: ({ steps, values }) => ({ steps, verdicts: values.verdict ?? [], values }),
  draw(stack, board, first) {
    const { plot, rail } = panel(stack, { title: "Steps", hint: "one cell each, by verdict", call: "steps?by=step", extra: "tight stepbar" });
    let { verdicts, values } = first;
    const key = (verdict) => [element("i", { class: `cell s-${LEVEL[verdict]}` }), verdict];
    fill(rail, element("span", { class: "scale verdicts" }, ["accept", "warn", "skip"].flatMap(key)));
    const level = (index) => LEVEL[verdicts[index]] ?? "unknown";
    const lane = new Lane(board, plot, HEIGHT, draw, { tabindex: "0", role: "slider", "aria-label": "Step" });

    function draw(ctx, left, height) {
      const room = height - 8;
      const [low, high] = board.range;
      const wide = left(1) - left(0);
      const width = Math.max(1, wide - (wide > 3 ? 1 : 0));
      // The worst level comes last, so that one bad step among many that share its pixel is seen.
      for (const name of Object.keys(TALL)) {
        const tall = TALL[name] * room;
        ctx.beginPath();
        board.steps.forEach((step, index) => { if (step > low - 1 && step < high + 1 && level(index) === name) ctx.rect(left(step - 0.5), height - tall, width, tall); });
        ctx.fillStyle = colour(`--${name}-fill`);
        ctx.fill();
      }
      mark(ctx, left(board.steps[board.pinned] - 0.5), width, height, TALL[level(board.pinned)] * room);
    }
    function mark(ctx, from, width, height, tall) {
      const [middle, top] = [from + width / 2, height - tall - 8];
      ctx.fillStyle = colour("--text");
      ctx.beginPath();
      ctx.moveTo(middle - 5, top);
      ctx.lineTo(middle + 5, top);
      ctx.lineTo(middle, top + 6);
      ctx.fill();
      ctx.strokeStyle = colour("--text");
      ctx.lineWidth = 1.5;
      ctx.strokeRect(from - 0.5, height - tall + 0.5, Math.max(3, width), tall - 1);
    }
    function spoken(index) {
      const parts = ["mismatch", "staleness", "total"].filter((gap) => values[`gaps.${gap}.k3`]?.[index] != null);
      return `step ${board.steps[index]}, ${verdicts[index] ?? "not judged"}, ${parts.map((gap) => `${gap} k3 ${number(values[`gaps.${gap}.k3`][index])}`).join(", ")}`;
    }
    lane.canvas.addEventListener("click", (event) => board.pin(lane.indexAt(event)));
    lane.canvas.addEventListener("keydown", ({ key }) => { if (key === "Enter") location.href = keeping(pages.step(run(), board.steps[board.pinned])); });
    let due;
    board.onMove((index, hovering) => {
      if (hovering) return;
      const { steps } = board;
      const bounds = { "aria-valuemin": steps[0], "aria-valuemax": steps.at(-1), "aria-valuenow": steps[index], "aria-valuetext": spoken(index) };
      for (const [name, value] of Object.entries(bounds)) lane.canvas.setAttribute(name, value);
      clearTimeout(due);
      if (!board.follows) due = setTimeout(() => { find("#spoken").textContent = spoken(index); }, SAID_AFTER);
    });
    return (next) => {
      ({ verdicts, values } = next);
      lane.redraw();
    };
  },
};
