// The same facts as text: for tooltips, for the line of counts, and for who cannot see the picture.

const IDLE_WORDS = {
  waiting: "waits",
  parked: "holds its blocks, not served",
  swapped: "swapped out, its blocks are on the host",
};

class Words {
  constructor(trace) {
    this.trace = trace;
  }

  name(step) {
    return this.trace.first_step + step;
  }

  counts(step) {
    const { trace } = this,
      { num_running, num_waiting, start, end } = trace.steps,
      { decode, prompt } = trace.tokens[step];
    const total = decode + prompt,
      { used, shared, cached, free, wasted } = this.usage(step);
    return [
      ["step", `${this.name(step)}`],
      ["took", duration(end[step] - start[step], (end[step] - start[step]) / 100)],
      ["running", num_running[step]],
      ["waiting", num_waiting[step]],
      ["tokens", trace.token_budget ? `${total} of ${trace.token_budget}` : total],
      ["blocks used", used],
      ["shared", shared],
      ["only cached", cached],
      ["free", free],
      ["slots taken and empty", wasted],
    ];
  }

  usage(step) {
    const usage = { used: 0, shared: 0, cached: 0, free: 0, wasted: 0 };
    for (const cell of this.trace.cells(step)) {
      usage[cell.state] += 1;
      if (cell.owners.length) usage.wasted += Math.round((1 - cell.fill) * this.trace.block_size);
    }
    return usage;
  }

  // What a request does in a step, in a few words.
  doing(row, step) {
    const { trace } = this,
      request = trace.rows[row],
      chunk = trace.chunk(row, step);
    if (chunk) {
      const { kind, start, n } = chunk,
        got = trace.numOutput(row, step),
        before = step ? trace.numOutput(row, step - 1) : 0;
      const range = n === 1 ? `token ${start}` : `tokens ${start}–${start + n - 1}`;
      const verb = { prefill: "computes prompt", recompute: "recomputes", decode: "decodes" }[kind];
      return (
        `${verb} ${range}` +
        (got > before ? `, gets output token ${got}` : "") +
        (request.finished === step ? ", finished" : "")
      );
    }
    if (request.finished !== null && request.finished < step) return "finished";
    if (request.arrival !== null && request.arrival > trace.steps.end[step]) return "not there yet";
    const middle = (trace.steps.start[step] + trace.steps.end[step]) / 2,
      wait = request.waits.find(({ from, to }) => from <= middle && middle <= to),
      swapped = wait?.kind === "swapped";
    if (request.preempted.includes(step))
      return swapped ? "preempted: its blocks go to the host" : "preempted: lost its blocks, waits";
    if (swapped) return IDLE_WORDS.swapped;
    return trace.at(step).tables.has(row) ? IDLE_WORDS.parked : IDLE_WORDS.waiting;
  }

  facts(row) {
    const { trace } = this,
      request = trace.rows[row],
      { ttft, longestItl, finished } = trace.times(row);
    const total = trace.numOutput(row, trace.numSteps);
    return [
      `request ${request.letter}` + (request.id === request.letter ? "" : ` (id ${request.id})`),
      request.num_prompt_tokens === null ? "" : `prompt ${request.num_prompt_tokens} tokens`,
      `${total} output ${total === 1 ? "token" : "tokens"}`,
      ttft === null ? "" : `first token after ${duration(ttft, 100)} (TTFT)`,
      longestItl === null ? "" : `longest gap between tokens ${duration(longestItl, 100)} (ITL)`,
      request.preempted.length ? `preempted ${times(request.preempted.length)}` : "",
      finished === null ? "not finished" : `finished at ${duration(finished, 100)}`,
    ].filter(Boolean);
  }

  // The whole step: who does what, who holds which blocks, what happened to blocks.
  step(step) {
    const { trace } = this,
      { tables, events } = trace.at(step),
      cells = trace.cells(step),
      { steps } = trace;
    const lines = [
      `Step ${this.name(step)}, from ${duration(steps.start[step], 10)} to ${duration(steps.end[step], 10)}.`,
    ];
    for (const { row, letter, preempted } of trace.rows) {
      const table = tables.get(row),
        doing = this.doing(row, step);
      if (!table && !preempted.includes(step) && (doing === "finished" || doing === "not there yet"))
        continue;
      const blocks = (table ?? []).map(
        (b) => b + (cells[b].owners.length > 1 ? `×${cells[b].owners.length}` : ""),
      );
      const held = table ? `; ${trace.numTokens(row, step, table)} tokens in blocks ${blocks.join(" ")}` : "";
      lines.push(`${letter}: ${doing}${held}.`);
    }
    const byEvent = {};
    for (const [block, all] of events) for (const event of all) (byEvent[event] ??= []).push(block);
    for (const [event, blocks] of Object.entries(byEvent))
      lines.push(`Blocks ${EVENT_WORDS[event]}: ${blocks.join(" ")}.`);
    const moves = {
      num_swapped_out: "swapped out to the host",
      num_swapped_in: "swapped in from the host",
      num_copied: "copied",
    };
    for (const [name, words] of Object.entries(moves))
      if (steps[name][step]) lines.push(`${steps[name][step]} blocks ${words}.`);
    if (steps.num_lost_tokens[step])
      lines.push(`Preemption threw away ${steps.num_lost_tokens[step]} computed tokens.`);
    lines.push(
      this.counts(step)
        .slice(2)
        .map(([name, value]) => `${name}: ${value}`)
        .join(", ") + ".",
    );
    return lines.join("\n");
  }

  // Tooltip lines for a box of any of the pictures.
  box(box, time) {
    const { trace } = this;
    if (box.block !== undefined) return this.block(box);
    if (IDLE_WORDS[box.kind])
      return [
        `${trace.rows[box.row].letter} ${IDLE_WORDS[box.kind]}`,
        `for ${duration(box.to - box.from, 10)}`,
      ];
    if (box.kind) {
      const step = clamp(trace.stepAt(time), box.first, box.last),
        { start, end } = trace.steps;
      return [
        `${trace.rows[box.row].letter} · step ${this.name(step)}`,
        this.doing(box.row, step),
        `took ${duration(end[step] - start[step], 10)}`,
        ...this.facts(box.row).slice(1),
      ];
    }
    if (box.step !== undefined) {
      const { decode, prompt } = trace.tokens[box.step];
      return [
        `step ${this.name(box.step)}`,
        `${decode} decode tokens`,
        `${prompt} prompt and recomputed tokens`,
      ];
    }
    return this.facts(box.row);
  }

  block({ block, state, owners, cached, events, fill }) {
    const slots = Math.round(fill * this.trace.block_size),
      names = owners.map((row) => this.trace.rows[row].letter).join(", ");
    return [
      `block ${block}`,
      {
        free: "free",
        cached: "kept by the prefix cache alone; free for who needs it",
        used: `used by ${names}`,
        shared: `shared by ${names}`,
      }[state],
      owners.length ? `${slots} of ${this.trace.block_size} slots hold tokens` : "",
      cached && owners.length ? "in the prefix cache, too" : "",
      ...events.map((event) => `now: ${EVENT_WORDS[event]}`),
    ].filter(Boolean);
  }
}

function times(n) {
  return n === 1 ? "once" : n === 2 ? "twice" : `${n} times`;
}
