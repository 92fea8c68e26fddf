/* The bar of steps: one cell per step, coloured and as tall as its verdict. Click or arrow keys move the pinned step. */

import { keeping, pages, run } from "../../lib/address.js";
import { element, fill, find } from "../../lib/dom.js";
import { LEVEL } from "../../lib/glyphs.js";
import { number } from "../../lib/numbers.js";
import { colour } from "../../lib/theme.js";
import { Lane } from "../../charts/lane.js";
import { panel } from "./panel.js";

const HEIGHT = 34;
/** Share of the height by level. */
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
      const fills = Object.fromEntries(Object.keys(TALL).map((name) => [name, colour(`--${name}-fill`)]));
      board.steps.forEach((step, index) => {
        if (step < low - 1 || step > high + 1) return;
        const [from, tall] = [left(step - 0.5), TALL[level(index)] * room];
        const width = Math.max(1, left(step + 0.5) - from - (left(step + 0.5) - from > 3 ? 1 : 0));
        ctx.fillStyle = fills[level(index)];
        ctx.fillRect(from, height - tall, width, tall);
        if (index === board.pinned) mark(ctx, from, width, height, tall);
      });
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
