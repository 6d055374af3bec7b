// The scheduler timeline: a row a request above, the tokens of each step below, one time axis for both.

class Timeline {
  constructor(app, rowsHolder, budgetHolder) {
    this.app = app;
    this.trace = app.trace;
    this.view = [0, this.trace.duration]; // µs
    this.highest = this.trace.tokens.reduce((most, { decode, prompt }) => Math.max(most, decode + prompt), 1);
    this.rowHeight = this.trace.rows.length > 12 ? 18 : 22;
    this.rows = new Pane(rowsHolder, (...args) => this.#drawRows(...args));
    this.budget = new Pane(budgetHolder, (...args) => this.#drawBudget(...args));
    this.rows.setHeight(this.trace.rows.length * this.rowHeight + 6);
    this.budget.setHeight(96);
  }

  x(time) {
    const [from, to] = this.view;
    return GUTTER + ((time - from) / (to - from)) * (this.rows.width - GUTTER - RIGHT);
  }

  time(x) {
    const [from, to] = this.view;
    return from + ((x - GUTTER) / (this.rows.width - GUTTER - RIGHT)) * (to - from);
  }

  // Show `factor` times more, around a time.
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const [from, to] = this.view;
    const length = clamp(
      (to - from) * factor,
      this.trace.duration / this.trace.numSteps / 4,
      this.trace.duration,
    );
    this.#show(around - ((around - from) / (to - from)) * length, length);
  }

  fit() {
    this.#show(0, this.trace.duration);
  }

  pan(by) {
    this.#show(this.view[0] + by, this.view[1] - this.view[0]);
  }

  // Bring the current step, and a row that it serves, into view.
  follow() {
    const { start, end } = this.trace.steps,
      [from, to] = this.view,
      { step, selected } = this.app;
    if (start[step] < from || end[step] > to)
      this.#show((start[step] + end[step] - (to - from)) / 2, to - from);
    const first = Math.floor(this.rows.holder.scrollTop / this.rowHeight);
    const last = first + Math.floor(this.rows.viewHeight / this.rowHeight);
    const served = this.trace.rows.filter(({ row }) => this.trace.chunk(row, step)).map(({ row }) => row);
    if (selected !== null) this.rows.show(selected * this.rowHeight, this.rowHeight);
    else if (served.length && !served.some((row) => row >= first && row < last))
      this.rows.holder.scrollTop =
        (served[served.length >> 1] + 0.5) * this.rowHeight - this.rows.viewHeight / 2;
  }

  invalidate() {
    this.rows.invalidate();
    this.budget.invalidate();
  }

  #show(from, length) {
    from = clamp(from, 0, this.trace.duration - length);
    this.view = [from, from + length];
    this.invalidate();
  }

  #drawRows(context, width, top, bottom) {
    const boxes = [],
      { rowHeight, trace } = this,
      { selected, step } = this.app;
    const first = Math.max(0, Math.floor(top / rowHeight)),
      last = Math.min(trace.rows.length, Math.ceil(bottom / rowHeight));
    context.save();
    context.beginPath();
    context.rect(GUTTER, top, width - GUTTER, bottom - top);
    context.clip();
    this.#drawPlayhead(context, top, bottom - top);
    for (let row = first; row < last; row++) {
      const y = (row + 0.5) * rowHeight + 3;
      if (row === selected) {
        context.fillStyle = "rgba(31,41,51,.07)";
        context.fillRect(GUTTER, y - rowHeight / 2, width, rowHeight);
      }
      context.globalAlpha = selected === null || selected === row ? 1 : 0.25;
      boxes.push(...this.#drawRow(context, trace.rows[row], y));
    }
    context.restore();
    for (let row = first; row < last; row++) {
      const request = trace.rows[row],
        over = request.finished !== null && request.finished < step;
      context.globalAlpha = (selected === null ? over : selected !== row) ? 0.45 : 1;
      chip(context, request, 6, (row + 0.5) * rowHeight + 3);
    }
    context.globalAlpha = 1;
    return boxes;
  }

  #drawRow(context, request, y) {
    const boxes = [],
      { trace, rowHeight } = this,
      [from, to] = this.view,
      { start, end } = trace.steps;
    const put = (box, a, b) => {
      if (b < from || a > to) return;
      const x = this.x(a),
        w = Math.max(1, this.x(b) - x);
      const h = bar(context, box.kind, request.colour, x, w, y, rowHeight);
      boxes.push({ ...box, x, y: y - rowHeight / 2, w, h: rowHeight, drawn: h });
    };
    for (const wait of request.waits) put(wait, wait.from, wait.to);
    for (const run of request.runs) {
      put(run, start[run.first], end[run.last]);
      this.#drawSteps(context, run, y);
    }
    const { firstToken, finished, stall } = trace.times(request.row),
      size = Math.min(9, rowHeight * 0.45);
    const mark = (name, time) => {
      if (time === null || time < from || time > to) return;
      MARKS[name](context, this.x(time), y, size);
      boxes.push({
        row: request.row,
        mark: name,
        time,
        x: this.x(time) - size,
        y: y - size,
        w: 2 * size,
        h: 2 * size,
      });
    };
    if (stall && stall.to >= from && stall.from <= to) {
      const [a, b] = [this.x(stall.from), this.x(stall.to)];
      bracket(context, a, b, y + rowHeight * 0.45);
      boxes.push({ row: request.row, mark: "stall", time: stall.from, x: a, y: y + rowHeight * 0.3, w: b - a, h: 4 });
    }
    mark("finished", finished);
    mark("first", firstToken);
    for (const step of request.preempted) mark("preempted", start[step]);
    return boxes;
  }

  // Where there is room, a gap between two steps of one bar, and the tokens of a chunk.
  #drawSteps(context, run, y) {
    const [from, to] = this.view,
      { start, end } = this.trace.steps,
      h = HEIGHTS[run.kind] * this.rowHeight;
    const first = Math.max(run.first, this.trace.stepAt(from)),
      last = Math.min(run.last, this.trace.stepAt(to));
    if (last < first || (this.x(end[last]) - this.x(start[first])) / (last - first + 1) < 5) return;
    for (let step = first; step <= last; step++) {
      const x = this.x(start[step]),
        w = this.x(end[step]) - x,
        n = run.counts?.[step - run.first] ?? 1;
      if (step > run.first) {
        context.fillStyle = "white";
        context.fillRect(x - 0.5, y - h / 2 - 0.5, 1, h + 1);
      }
      const { ink } = this.trace.rows[run.row],
        label = String(n);
      if (run.kind === "prefill" && w > 7 * label.length + 8)
        text(context, label, x + 4, y + 0.5, { size: 10, colour: ink });
    }
  }

  #drawPlayhead(context, y, h) {
    const { start, end } = this.trace.steps,
      { step } = this.app,
      x = this.x(start[step]);
    context.fillStyle = "#ffe9a8";
    context.fillRect(x, y, Math.max(2, this.x(end[step]) - x), h);
  }

  #drawBudget(context, width) {
    const boxes = [],
      { trace } = this,
      { start, end } = trace.steps,
      bottom = 96 - AXIS;
    const budget = trace.token_budget,
      highest = this.highest;
    const shown = budget && budget <= 4 * highest,
      top = 1.12 * Math.max(highest, shown ? budget : 0);
    const height = (tokens) => (tokens / top) * (bottom - 4);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, 96);
    context.clip();
    this.#drawPlayhead(context, 0, bottom);
    for (const step of this.#tallest()) {
      const x = this.x(start[step]),
        w = this.x(end[step]) - x,
        { decode, prompt } = trace.tokens[step];
      const gap = w > 5 ? 1 : 0,
        d = height(decode),
        p = height(prompt),
        drawn = Math.max(1, w - gap);
      context.fillStyle = DECODE_BAR;
      context.fillRect(x, bottom - d, drawn, d);
      context.fillStyle = PROMPT_BAR;
      context.fillRect(x, bottom - d - p, drawn, p);
      boxes.push({ step, x, w: Math.max(1, w), y: 0, h: bottom, decode: d, prompt: p });
    }
    if (shown) {
      context.setLineDash([5, 4]);
      stroke(context, [[GUTTER, bottom - height(budget), width - RIGHT, bottom - height(budget)]], RED, 1.2);
      context.setLineDash([]);
    }
    drawAxis(context, this, width, bottom);
    context.restore();
    text(context, shown ? `${budget}` : `${highest}`, GUTTER - 6, bottom - height(shown ? budget : highest), {
      size: 10,
      align: "right",
      colour: shown ? RED : GREY,
    });
    text(context, "0", GUTTER - 6, bottom - 3, { size: 10, align: "right", colour: GREY });
    if (shown && height(budget) > 34)
      text(context, "tokens", 4, bottom - height(budget) / 2, { size: 10, colour: GREY });
    return boxes;
  }

  // Steps in view; of those that fall on one pixel, the one with the most tokens.
  #tallest() {
    const { start, end } = this.trace.steps,
      tokens = (step) => this.trace.tokens[step].decode + this.trace.tokens[step].prompt;
    const [from, to] = this.view,
      found = [],
      perPixel = (to - from) / this.rows.width;
    let pixel = null;
    for (let step = this.trace.stepAt(from); step < this.trace.numSteps && start[step] <= to; step++) {
      const last = found.length - 1,
        at = Math.floor(start[step] / perPixel);
      if (at !== pixel || end[step] - start[step] > perPixel) found.push(step);
      else if (tokens(step) > tokens(found[last])) found[last] = step;
      pixel = at;
    }
    return found;
  }
}
