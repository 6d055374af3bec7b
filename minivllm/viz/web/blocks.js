// The block table: all physical blocks as a grid, and each request's own table, block by block.

const GAP = 3,
  GRID_GUTTER = 40,
  TABLE_GUTTER = 108;

class Blocks {
  constructor(app, gridHolder, tablesHolder) {
    this.app = app;
    this.trace = app.trace;
    this.grid = new Pane(gridHolder, (...args) => this.#drawGrid(...args));
    this.tables = new Pane(tablesHolder, (...args) => this.#drawTables(...args));
    this.lit = null; // the block that is pointed at, in either picture
    new ResizeObserver(() => this.#layOut()).observe(gridHolder);
    new ResizeObserver(() => this.#layOut()).observe(tablesHolder);
  }

  update() {
    const { step } = this.app;
    this.cells = this.trace.cells(step);
    this.entries = [...this.trace.at(step).tables].sort(([a], [b]) => a - b);
    this.#layOut();
    if (this.app.selected !== null) {
      const at = this.entries.findIndex(([row]) => row === this.app.selected);
      if (at >= 0) this.tables.show(this.tops[at], this.tops[at + 1] - this.tops[at]);
    }
  }

  light(block) {
    if (block === this.lit) return;
    this.lit = block;
    this.invalidate();
  }

  invalidate() {
    this.grid.invalidate();
    this.tables.invalidate();
  }

  #layOut() {
    if (!this.cells) return;
    const n = this.trace.num_blocks,
      room = this.grid.width - GRID_GUTTER - 8;
    const size = (columns) => Math.min(36, Math.floor(room / columns));
    this.columns = [8, 16, 32, 64, 128].find(
      (c) => (Math.ceil(n / c) * size(c) <= 330 && size(c) >= 4) || size(c * 2) < 6,
    );
    this.size = Math.max(3, size(this.columns));
    this.grid.setHeight(Math.ceil(n / this.columns) * this.size + 10);

    this.perLine = Math.max(4, Math.floor((this.tables.width - TABLE_GUTTER - 8) / 30));
    this.tops = [6];
    for (const [, blocks] of this.entries)
      this.tops.push(
        this.tops[this.tops.length - 1] + Math.max(1, Math.ceil(blocks.length / this.perLine)) * 26 + 8,
      );
    this.tables.setHeight(Math.max(60, this.tops[this.tops.length - 1]));
    this.invalidate();
  }

  #faded(cell) {
    return this.app.selected !== null && !cell.owners.includes(this.app.selected);
  }

  #drawGrid(context, width, top, bottom) {
    const boxes = [],
      { size, columns } = this,
      gap = size > 16 ? GAP : size > 8 ? 2 : 1;
    const first = Math.max(0, Math.floor((top - 6) / size)),
      last = Math.ceil((bottom - 6) / size);
    const rows = Math.ceil(this.trace.num_blocks / columns),
      every = Math.max(1, Math.ceil(13 / size));
    const marked = [];
    for (let row = first; row < Math.min(rows, last); row++) {
      const y = 8 + row * size;
      if (row % every === 0)
        text(context, String(row * columns), GRID_GUTTER - 8, y + (size - gap) / 2, {
          size: 10,
          align: "right",
          colour: GREY,
        });
      for (let column = 0; column < columns; column++) {
        const cell = this.cells[row * columns + column];
        if (!cell) break;
        const x = GRID_GUTTER + column * size,
          w = size - gap,
          faded = this.#faded(cell);
        block(context, x, y, w, w, cell, this.trace.rows, this.#label(cell), faded);
        const box = { ...cell, x, y, w, h: w, faded };
        boxes.push(box);
        if (cell.events.length || this.#isLit(cell)) marked.push(box);
      }
    }
    this.#mark(context, marked);
    return boxes;
  }

  #drawTables(context, width, top, bottom) {
    const boxes = [],
      marked = [];
    if (!this.entries.length) text(context, "no request has blocks in this step", 8, 26, { colour: GREY });
    this.entries.forEach(([row, blocks], i) => {
      if (this.tops[i + 1] < top || this.tops[i] > bottom) return;
      const request = this.trace.rows[row],
        tokens = this.trace.numTokens(row, this.app.step, blocks);
      const middle = this.tops[i] + 13,
        faded = this.app.selected !== null && this.app.selected !== row;
      context.globalAlpha = faded ? 0.35 : 1;
      chip(context, request, 6, middle);
      text(context, `${tokens} tokens`, TABLE_GUTTER - 8, middle + 0.5, {
        size: 10.5,
        align: "right",
        colour: GREY,
      });
      boxes.push({ row, tokens, x: 0, y: middle - 13, w: TABLE_GUTTER - 6, h: 26 });
      blocks.forEach((id, position) => {
        const x = TABLE_GUTTER + (position % this.perLine) * 30,
          y = this.tops[i] + Math.floor(position / this.perLine) * 26 + 2;
        const fill = clamp(tokens / this.trace.block_size - position, 0, 1),
          cell = this.cells[id];
        const shown = { ...cell, owners: [row], fill };
        block(context, x, y, 27, 22, shown, this.trace.rows, String(id), faded);
        if (cell.owners.length > 1) {
          context.globalAlpha = faded ? 0.35 : 1;
          ownerCount(context, x, y, cell.owners.length);
          context.globalAlpha = 1;
        }
        const box = { ...cell, row, position, fill, x, y, w: 27, h: 22, faded };
        boxes.push(box);
        if (cell.events.length || this.#isLit(cell)) marked.push(box);
      });
      context.globalAlpha = 1;
    });
    this.#mark(context, marked);
    return boxes;
  }

  #label(cell) {
    if (cell.owners.length > 1) return `×${cell.owners.length}`;
    return cell.owners.length ? this.trace.rows[cell.owners[0]].letter : "";
  }

  #isLit(cell) {
    return cell.block === this.lit;
  }

  // Borders last, so that no neighbour covers them.
  #mark(context, boxes) {
    for (const { x, y, w, h, events, block } of boxes) {
      if (events.length) eventMark(context, x, y, w, h, events);
      if (block === this.lit) {
        context.strokeStyle = "#e69f00";
        context.lineWidth = 3;
        context.strokeRect(x - 1.5, y - 1.5, w + 3, h + 3);
      }
    }
  }
}
