// The trace and its playback: which block is whose after which step, and what happened to it. No drawing.

const SNAPSHOT_EVERY = 64;
// A gap between two tokens is a stall if it is so many times the median one of its request.
const STALL = 1.5;

class KVState {
  constructor(numBlocks) {
    this.tables = new Map(); // row → block ids
    this.cached = new Set();
    this.owners = new Int32Array(numBlocks); // block → number of tables that hold it
  }

  copy() {
    const other = new KVState(0);
    other.tables = new Map([...this.tables].map(([row, blocks]) => [row, [...blocks]]));
    other.cached = new Set(this.cached);
    other.owners = this.owners.slice();
    return other;
  }

  // Move on by one step's changes; returns block → what happened to it, in order. `swapped` has the rows
  // that went to the host in this step, each with its number of filled blocks, and those that came back.
  apply(changes, kinds, swapped) {
    const events = new Map();
    const note = (block, event) =>
      events.has(block) ? events.get(block).push(event) : events.set(block, [event]);
    for (const [code, row, ...what] of changes) {
      const kind = kinds[code];
      if (kind === "append" || kind === "hit") {
        const back = !this.tables.has(row) && swapped.in.has(row);
        if (!this.tables.has(row)) this.tables.set(row, []);
        for (const block of what) {
          note(block, kind === "hit" ? "hit" : this.owners[block] ? "shared" : back ? "swappedIn" : "taken");
          this.tables.get(row).push(block);
          this.owners[block] += 1;
        }
      } else if (kind === "replace") {
        const [position, block] = what,
          table = this.tables.get(row);
        note(block, this.cached.has(block) ? "merged" : "copied");
        this.owners[table[position]] -= 1;
        this.owners[block] += 1;
        table[position] = block;
      } else if (kind === "drop") {
        (this.tables.get(row) ?? []).forEach((block, i) => {
          this.owners[block] -= 1;
          if (i < (swapped.out.get(row) ?? 0) && !this.owners[block]) note(block, "swappedOut");
        });
        this.tables.delete(row);
      } else if (kind === "cache") {
        for (const block of what) this.cached.add(block);
      } else {
        for (const block of what) {
          this.cached.delete(block);
          note(block, "evicted");
        }
      }
    }
    return events;
  }
}

class Trace {
  constructor(data) {
    Object.assign(this, data);
    this.numSteps = data.steps.start.length;
    this.duration = data.steps.end[this.numSteps - 1];
    this.rows = data.requests.map((request, row) => ({ ...request, row, runs: [], waits: [] }));
    for (const [row, kind, step, token, n] of data.runs) {
      const counts = Array.isArray(n) ? n : null,
        length = counts ? n.length : n;
      this.rows[row].runs.push({
        row,
        kind: data.kinds[kind],
        first: step,
        last: step + length - 1,
        token,
        counts,
      });
    }
    for (const [row, kind, from, to] of data.waits)
      this.rows[row].waits.push({ row, kind: data.kinds[kind], from, to });
    this.tokens = this.#tokensPerStep();
    this.#start = new KVState(this.num_blocks);
    for (const [row, ...blocks] of data.start.tables) {
      this.#start.tables.set(row, blocks);
      for (const block of blocks) this.#start.owners[block] += 1;
    }
    for (const block of data.start.cached) this.#start.cached.add(block);
    this.#snapshots = [this.#start];
  }
  #start;
  #snapshots;
  #memo = null;
  #drawn = null;

  // {tables, cached, owners, events} when step `step` has run; do not change it.
  at(step) {
    if (this.#memo?.step === step) return this.#memo.state;
    const next = this.#memo && this.#memo.step < step && step - this.#memo.step < SNAPSHOT_EVERY;
    const nearest = Math.min(this.#snapshots.length - 1, Math.floor(step / SNAPSHOT_EVERY));
    let state = next ? this.#memo.state : this.#snapshots[nearest].copy();
    for (let i = next ? this.#memo.step + 1 : nearest * SNAPSHOT_EVERY; i <= step; i++) {
      if (i && i % SNAPSHOT_EVERY === 0 && this.#snapshots.length === i / SNAPSHOT_EVERY)
        this.#snapshots.push(state.copy());
      state.events = state.apply(this.changes[i], this.change_kinds, this.#swapped(i));
    }
    this.#memo = { step, state };
    return state;
  }

  // Rows whose time on the host begins (row → filled blocks), and ends, in a step.
  #swapped(step) {
    const { start, num_swapped_out, num_swapped_in } = this.steps,
      found = { out: new Map(), in: new Set() };
    if (!num_swapped_out[step] && !num_swapped_in[step]) return found;
    for (const { row, waits } of this.rows)
      for (const { kind, from, to } of waits)
        if (kind === "swapped") {
          if (from === start[step])
            found.out.set(row, Math.ceil(this.#computed(row, step - 1) / this.block_size));
          if (to === start[step]) found.in.add(row);
        }
    return found;
  }

  // The run of a row that covers the step, or the last one before it.
  runBefore(row, step) {
    const runs = this.rows[row].runs;
    let low = 0,
      high = runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs[middle].first <= step) low = middle + 1;
      else high = middle;
    }
    return runs[low - 1] ?? null;
  }

  // {kind, start, n} of a row in a step, or null if it was not served.
  chunk(row, step) {
    const run = this.runBefore(row, step);
    if (!run || run.last < step) return null;
    const start = run.token + sum(run.counts, step - run.first);
    return { kind: run.kind, start, n: run.counts ? run.counts[step - run.first] : 1 };
  }

  #computed(row, step) {
    const run = this.runBefore(row, step);
    return run ? run.token + sum(run.counts, Math.min(step, run.last) - run.first + 1) : 0;
  }

  // Tokens whose keys and values are in the row's blocks when the step has run.
  numTokens(row, step, table) {
    const run = this.runBefore(row, step),
      most = table.length * this.block_size;
    if (!run) return Math.min(this.rows[row].num_prompt_tokens ?? most, most); // forked, not yet served
    return Math.min(this.#computed(row, step), most);
  }

  // How many tokens a row had got when the step had run.
  numOutput(row, step) {
    return this.rows[row].tokens.reduce((n, [a, b]) => n + Math.max(0, Math.min(b, step) - a + 1), 0);
  }

  // Times of a row, in µs; null where they have not happened or are not known.
  times(row) {
    return (this.rows[row].times ??= this.#measure(row));
  }

  #measure(row) {
    const { arrival, is_whole, tokens, finished } = this.rows[row],
      end = this.steps.end;
    let longest = null,
      before = null;
    const gaps = [];
    for (const [first, last] of tokens)
      for (let step = first; step <= last; step++) {
        if (before !== null) {
          const gap = end[step] - end[before];
          gaps.push(gap);
          if (gap > (longest?.gap ?? 0)) longest = { gap, from: end[before], to: end[step] };
        }
        before = step;
      }
    const median = gaps.sort((a, b) => a - b)[(gaps.length - 1) >> 1];
    const first = is_whole && tokens.length ? tokens[0][0] : null;
    return {
      firstToken: first === null ? null : end[first],
      ttft: first === null ? null : end[first] - arrival,
      longestItl: gaps.length ? (longest?.gap ?? 0) : null,
      stall: longest && longest.gap > STALL * median ? longest : null,
      finished: finished === null ? null : end[finished],
    };
  }

  // What each physical block is in a step: {state, owners: rows, cached, events, fill: 0…1}.
  cells(step) {
    if (this.#drawn?.step !== step) this.#drawn = { step, cells: this.#makeCells(step) };
    return this.#drawn.cells;
  }

  #makeCells(step) {
    const { tables, cached, events } = this.at(step);
    const cells = Array.from({ length: this.num_blocks }, (_, block) => ({
      block,
      state: "free",
      owners: [],
      cached: cached.has(block),
      events: events.get(block) ?? [],
      fill: 0,
    }));
    for (const [row, blocks] of tables) {
      const tokens = this.numTokens(row, step, blocks);
      blocks.forEach((block, i) => {
        cells[block].owners.push(row);
        cells[block].fill = Math.max(cells[block].fill, clamp(tokens / this.block_size - i, 0, 1));
      });
    }
    for (const cell of cells) {
      if (cell.owners.length) cell.state = cell.owners.length > 1 ? "shared" : "used";
      else if (cell.cached) cell.state = "cached";
      cell.owners.sort((a, b) => a - b);
    }
    return cells;
  }

  // Position of the step that runs, or ran last, at a time.
  stepAt(time) {
    const start = this.steps.start;
    let low = 0,
      high = start.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #tokensPerStep() {
    const totals = Array.from({ length: this.numSteps }, () => ({ decode: 0, prompt: 0 }));
    for (const { runs } of this.rows)
      for (const run of runs)
        for (let step = run.first; step <= run.last; step++)
          totals[step][run.kind === "decode" ? "decode" : "prompt"] += run.counts
            ? run.counts[step - run.first]
            : 1;
    return totals;
  }
}

// The first n counts of a run together; a run without counts has one token a step.
function sum(counts, n) {
  if (!counts) return n;
  let total = 0;
  for (let i = 0; i < n; i++) total += counts[i];
  return total;
}

function clamp(x, low, high) {
  return Math.min(Math.max(x, low), high);
}
