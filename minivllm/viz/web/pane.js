// A canvas that draws only what is in view: it sticks to the top of a scrolling box whose height is that
// of the whole picture. `draw(context, width, top, bottom)` works in the picture's own coordinates and
// returns boxes {x, y, w, h, …} for whatever can be pointed at.

class Pane {
  constructor(holder, draw) {
    this.holder = holder;
    this.draw = draw;
    this.boxes = [];
    this.canvas = holder.querySelector("canvas");
    this.spacer = document.createElement("div");
    holder.append(this.spacer);
    holder.addEventListener("scroll", () => this.invalidate());
    new ResizeObserver(() => this.invalidate()).observe(holder);
  }

  get width() {
    return this.holder.clientWidth;
  }

  setHeight(height) {
    this.height = height;
    const view = Math.min(height, parseFloat(getComputedStyle(this.holder).maxHeight) || height);
    this.viewHeight = view;
    this.canvas.style.height = `${view}px`;
    this.spacer.style.height = `${height - view}px`;
  }

  invalidate() {
    this.pending ??= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.pending);
    this.pending = null;
    const scale = window.devicePixelRatio || 1,
      width = this.width,
      height = this.viewHeight;
    if (!width || !height) return;
    if (
      this.canvas.width !== Math.round(width * scale) ||
      this.canvas.height !== Math.round(height * scale)
    ) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const context = this.canvas.getContext("2d"),
      top = this.holder.scrollTop;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.translate(0, -top);
    this.boxes = this.draw(context, width, top, top + height);
  }

  // Picture coordinates of a pointer event.
  place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top + this.holder.scrollTop };
  }

  // The box under a pointer event; the last drawn is on top.
  find(event) {
    const { x, y } = this.place(event);
    return this.boxes.findLast((b) => x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h) ?? null;
  }

  show(y, height) {
    const { scrollTop } = this.holder,
      margin = height;
    if (y < scrollTop) this.holder.scrollTop = y - margin;
    else if (y + height > scrollTop + this.viewHeight)
      this.holder.scrollTop = y + height + margin - this.viewHeight;
  }
}

// The facts of what is pointed at or focused, beside it.
class Tooltip {
  constructor(element) {
    this.element = element;
  }

  show(lines, x, y) {
    const { element } = this;
    element.replaceChildren(
      ...lines.map((line, i) => {
        const row = document.createElement(i ? "div" : "strong");
        row.textContent = line;
        return row;
      }),
    );
    element.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = element,
      { clientWidth, clientHeight } = document.documentElement;
    element.style.left = `${clamp(x + 14, 4, clientWidth - w - 4)}px`;
    element.style.top = `${y + 18 + h > clientHeight ? Math.max(4, y - h - 10) : y + 18}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
