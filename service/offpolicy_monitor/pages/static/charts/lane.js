/* A canvas that shares the x of a board's plots: the bar of steps, the lanes of alerts. */

import { element } from "../lib/dom.js";
import { gutter } from "./board.js";

export class Lane {
  /** `draw(ctx, left(step), height)` draws it; `height` in pixels. `attributes` are those of the canvas. */
  constructor(board, host, height, draw, attributes = {}) {
    Object.assign(this, { board, host, height, draw });
    this.canvas = element("canvas", attributes);
    host.replaceChildren(this.canvas);
    board.add(this);
    this.redraw();
  }

  rebuild() {
    this.redraw();
  }

  ranged() {
    this.redraw();
  }

  redraw() {
    const [low, high] = this.board.range;
    const pixel = devicePixelRatio;
    const { left, right } = gutter();
    const width = this.host.clientWidth;
    const inner = width - left - right;
    Object.assign(this.canvas, { width: width * pixel, height: this.height * pixel });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height}px` });
    const ctx = this.canvas.getContext("2d");
    ctx.scale(pixel, pixel);
    ctx.beginPath();
    ctx.rect(left, 0, inner, this.height);
    ctx.clip();
    this.draw(ctx, (step) => left + ((step - low) / (high - low)) * inner, this.height);
  }

  /** The index of the step under a pointer. */
  indexAt(event) {
    const { left, right } = gutter();
    const box = this.canvas.getBoundingClientRect();
    const [low, high] = this.board.range;
    return this.board.nearest(low + ((event.clientX - box.left - left) / (box.width - left - right)) * (high - low));
  }
}
