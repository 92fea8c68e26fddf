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
    this.rebuild();
  }

  /** The width is read where it may have changed alone: to read it after a change lays the whole page out. */
  rebuild() {
    const pixel = devicePixelRatio;
    this.width = this.host.clientWidth;
    Object.assign(this.canvas, { width: this.width * pixel, height: this.height * pixel });
    Object.assign(this.canvas.style, { width: `${this.width}px`, height: `${this.height}px` });
    this.redraw();
  }

  ranged() {
    this.redraw();
  }

  redraw() {
    const [low, high] = this.board.range;
    const { left, right } = gutter();
    const inner = this.width - left - right;
    const ctx = this.canvas.getContext("2d");
    const scale = this.canvas.width / this.width;
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, inner, this.height);
    ctx.clip();
    this.draw(ctx, (step) => left + ((step - low) / (high - low)) * inner, this.height);
    ctx.restore();
  }

  /** The index of the step under a pointer. */
  indexAt(event) {
    const { left, right } = gutter();
    const box = this.canvas.getBoundingClientRect();
    const [low, high] = this.board.range;
    return this.board.nearest(low + ((event.clientX - box.left - left) / (box.width - left - right)) * (high - low));
  }
}
