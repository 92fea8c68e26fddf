/* What is marked on a plot: the time since onset and the ordinary band below its lines, thresholds with their names,
   the onset and the pinned step above them. */

import { colour } from "../lib/theme.js";
import { isNarrow } from "./board.js";

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Below the lines. */
export function drawUnder(u, board, shown) {
  const { ctx, bbox } = u;
  const right = bbox.left + bbox.width;
  ctx.save();
  if (board.since != null) {
    const left = clamp(u.valToPos(board.since - 0.5, "x", true), bbox.left, right);
    ctx.fillStyle = colour("--critical-wash");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  if (shown.band) {
    const bottom = bbox.top + bbox.height;
    const top = clamp(u.valToPos(shown.band.high, "y", true), bbox.top, bottom);
    const low = clamp(u.valToPos(shown.band.low, "y", true), bbox.top, bottom);
    ctx.fillStyle = colour("--band");
    ctx.fillRect(bbox.left, top, bbox.width, Math.max(1, low - top));
  }
  ctx.restore();
}

/** Above the lines. */
export function drawOver(u, board, shown) {
  const { ctx, bbox } = u;
  const pixel = devicePixelRatio;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.font = `${11 * pixel}px ${colour("--sans")}`;
  ctx.textBaseline = "bottom";
  drawLimits(u, shown.limits ?? [], pixel);
  if (shown.band && !isNarrow()) say(ctx, pixel, shown.band.text, bbox.left + 6 * pixel, u.valToPos(shown.band.low, "y", true) + 15 * pixel, "--quiet");
  ctx.setLineDash([]);
  if (board.changes) drawChanges(u, board.changes, shown.isMain, pixel);
  if (board.since != null) {
    const left = u.valToPos(board.since - 0.5, "x", true);
    if (left > bbox.left && left < right) {
      upright(ctx, bbox, left, colour("--critical"), pixel);
      const late = left > right - 80 * pixel;
      if (shown.isMain) say(ctx, pixel, `since ${board.since}`, left + (late ? -5 : 5) * pixel, bbox.top + 15 * pixel, "--critical", late ? "right" : "left");
    }
  }
  const left = u.valToPos(board.steps[board.pinned], "x", true);
  if (left >= bbox.left - 1 && left <= right + 1) {
    ctx.globalAlpha = 0.55;
    upright(ctx, bbox, left, colour("--text"), pixel);
  }
  ctx.restore();
}

/** A line where the attempt changes; in the main plot a tick where the policy version does. */
function drawChanges(u, { versions, attempts }, isMain, pixel) {
  const { ctx, bbox } = u;
  const bottom = bbox.top + bbox.height;
  const uprights = (steps, top, name) => {
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = pixel;
    ctx.beginPath();
    for (const step of steps) {
      const left = u.valToPos(step - 0.5, "x", true);
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      ctx.moveTo(left, top);
      ctx.lineTo(left, bottom);
    }
    ctx.stroke();
  };
  if (isMain) uprights(versions, bottom - 5 * pixel, "--line-strong");
  ctx.setLineDash([2 * pixel, 2 * pixel]);
  uprights(attempts, bbox.top, "--text");
  ctx.setLineDash([]);
}

/** Horizontal lines, each named in the corner where the data leave most room. */
function drawLimits(u, limits, pixel) {
  const { ctx, bbox } = u;
  const right = bbox.left + bbox.width;
  const named = [];
  for (const limit of limits) {
    const y = u.valToPos(limit.value, "y", true);
    if (y < bbox.top - 1 || y > bbox.top + bbox.height + 1) continue;
    ctx.strokeStyle = colour(`--${limit.level}`);
    ctx.lineWidth = pixel;
    ctx.setLineDash([5 * pixel, 4 * pixel]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(right, y);
    ctx.stroke();
    const text = isNarrow() ? limit.text.split(/ · |, /)[0] : limit.text;
    const corner = roomiest(u, y, ctx.measureText(text).width + 12 * pixel, named, pixel);
    named.push({ side: corner.side, y: y + corner.off * pixel });
    const left = corner.side === "left" ? bbox.left + 6 * pixel : right - 6 * pixel;
    say(ctx, pixel, text, left, y + (corner.off < 0 ? -2 : 15) * pixel, `--${limit.level}`, corner.side);
  }
}

/** Above or below a line at `y`, at its left or right end. */
function roomiest(u, y, width, named, pixel) {
  const { bbox } = u;
  const right = bbox.left + bbox.width;
  const corners = ["left", "right"].flatMap((side) => [-8, 8].map((off) => ({ side, off })));
  for (const corner of corners) {
    const at = y + corner.off * pixel;
    const taken = named.some((other) => other.side === corner.side && Math.abs(other.y - at) < 14 * pixel);
    const outside = at - 8 * pixel < bbox.top || at + 8 * pixel > bbox.top + bbox.height;
    const [from, to] = corner.side === "left" ? [bbox.left, bbox.left + width] : [right - width, right];
    corner.free = taken || outside ? 0 : Math.min(16 * pixel, nearest(u, from, to, at));
  }
  return corners.reduce((best, corner) => (corner.free > best.free ? corner : best));
}

/** How close a line comes to `y` between two x. */
function nearest(u, from, to, y) {
  const [first, last] = [u.posToIdx(from, true), u.posToIdx(to, true)];
  let least = Infinity;
  for (const values of u.data.slice(1)) {
    for (let index = first; index <= last; index++) {
      if (values[index] != null) least = Math.min(least, Math.abs(u.valToPos(values[index], "y", true) - y));
    }
  }
  return least;
}

function upright(ctx, bbox, left, stroke, width) {
  ctx.strokeStyle = stroke;
  ctx.lineWidth = width;
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
}

/** Text with a rim of the panel's colour, so that it can be read over lines. */
function say(ctx, pixel, text, x, y, name, align = "left") {
  ctx.textAlign = align;
  ctx.lineJoin = "round";
  ctx.lineWidth = 4 * pixel;
  ctx.strokeStyle = colour("--panel");
  ctx.setLineDash([]);
  ctx.strokeText(text, x, y);
  ctx.fillStyle = colour(name);
  ctx.fillText(text, x, y);
}
