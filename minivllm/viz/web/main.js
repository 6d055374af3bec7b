// Puts the pictures, the controls and the words together. State is one step and one selected request.

const HINT = "Click a request to see its times and light its blocks.";
// A long trace opens at the steps around the busiest one; "fit" shows all of it.
const MOST_STEPS = 300;

class App {
  constructor(data) {
    this.trace = new Trace(data);
    this.words = new Words(this.trace);
    this.step = 0;
    this.selected = null;
    this.find = (id) => document.getElementById(id);
    this.tooltip = new Tooltip(this.find("tooltip"));
    this.timeline = new Timeline(this, this.find("rows"), this.find("budget"));
    this.blocks = new Blocks(this, this.find("grid"), this.find("tables"));
    this.#fillPage();
    this.#listen();
    const { num_free_blocks } = this.trace.steps;
    const asked = Number(location.hash.slice(1));
    const busiest = num_free_blocks.indexOf(Math.min(...num_free_blocks));
    this.goTo(location.hash ? asked - this.trace.first_step : busiest);
    if (this.trace.numSteps > MOST_STEPS) this.#zoom(MOST_STEPS / this.trace.numSteps);
  }

  goTo(step) {
    this.step = clamp(Math.round(step) || 0, 0, this.trace.numSteps - 1);
    this.#update();
  }

  select(row) {
    this.selected = row;
    this.find("request").value = row === null ? "" : String(row);
    this.find("request-facts").textContent = row === null ? HINT : this.words.facts(row).join(" · ");
    this.#update();
  }

  play() {
    if (this.step === this.trace.numSteps - 1) this.goTo(0);
    let before = performance.now(),
      due = 0;
    const tick = (now) => {
      due += ((now - before) / 1000) * Number(this.find("speed").value);
      before = now;
      if (due >= 1) {
        this.goTo(this.step + Math.floor(due));
        due %= 1;
      }
      if (this.step === this.trace.numSteps - 1) this.pause();
      else this.playing = requestAnimationFrame(tick);
    };
    this.playing = requestAnimationFrame(tick);
    this.#showPlaying();
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = null;
    this.#showPlaying();
    this.#update();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  #showPlaying() {
    const button = this.find("play");
    button.textContent = this.playing ? "❚❚ pause" : "▶ play";
    button.setAttribute("aria-pressed", String(Boolean(this.playing)));
    this.find("counts").setAttribute("aria-live", this.playing ? "off" : "polite");
  }

  #update() {
    const { step, words } = this;
    this.find("step").value = step;
    this.find("step").setAttribute("aria-valuetext", `step ${words.name(step)}`);
    this.timeline.follow();
    this.timeline.invalidate();
    this.blocks.update();
    this.find("counts").replaceChildren(
      ...words.counts(step).map(([name, value]) => {
        const fact = document.createElement("span"),
          number = document.createElement("b");
        number.textContent = value;
        const before = ["step", "took"].includes(name);
        const last = name === "step" ? ` of ${words.name(this.trace.numSteps - 1)}` : "";
        fact.append(before ? `${name} ` : "", number, before ? last : ` ${name}`, " ");
        return fact;
      }),
    );
    if (this.find("details").open) this.find("words").textContent = words.step(step);
    if (!this.playing) {
      const served = this.trace.rows
        .filter(({ row }) => this.trace.chunk(row, step))
        .map(({ letter }) => letter)
        .join(", ");
      this.timeline.rows.canvas.setAttribute(
        "aria-label",
        `Scheduler timeline, step ${words.name(step)}; served: ${served || "nobody"}.`,
      );
      this.blocks.grid.canvas.setAttribute(
        "aria-label",
        `Physical blocks: ${this.find("counts").textContent}`,
      );
    }
  }

  #fillPage() {
    const { trace } = this,
      { rows } = trace;
    const facts = [
      `${rows.length} requests`,
      `${trace.numSteps} steps in ${duration(trace.duration, trace.duration / 100)}`,
      `${trace.num_blocks} blocks of ${trace.block_size} tokens`,
      trace.token_budget ? `${trace.token_budget} tokens a step at most` : "",
    ];
    this.find("about").textContent = facts.filter(Boolean).join(" · ");
    this.find("request-facts").textContent = HINT;
    this.find("step").max = trace.numSteps - 1;
    for (const { row, letter, id } of rows)
      this.find("request").add(new Option(letter === id ? letter : `${letter} (${id})`, row));
    const speeds = [1, 2, 5, 10, 30, 100, 300],
      wanted = clamp(trace.numSteps / 40, 4, 300);
    const best = speeds.findLast((speed) => speed <= wanted);
    for (const speed of speeds)
      this.find("speed").add(new Option(`${speed} steps/s`, speed, speed === best, speed === best));
    legend(this.find("timeline-legend"), TIMELINE_LEGEND);
    legend(this.find("blocks-legend"), BLOCKS_LEGEND);
  }

  #listen() {
    const on = (id, event, handler) => this.find(id).addEventListener(event, handler);
    on("step", "input", () => this.goTo(Number(this.find("step").value)));
    on("play", "click", () => this.toggle());
    on("back", "click", () => this.goTo(this.step - 1));
    on("next", "click", () => this.goTo(this.step + 1));
    on("in", "click", () => this.#zoom(0.5));
    on("out", "click", () => this.#zoom(2));
    on("fit", "click", () => this.timeline.fit());
    on("request", "change", () =>
      this.select(this.find("request").value === "" ? null : Number(this.find("request").value)),
    );
    on("details", "toggle", () => this.#update());
    document.addEventListener("keydown", (event) => this.#key(event));
    listenTo(this, this.timeline.rows);
    listenTo(this, this.timeline.budget);
    listenTo(this, this.blocks.grid);
    listenTo(this, this.blocks.tables);
    // Whoever comes by keyboard gets the facts that the mouse would show.
    const canvas = this.timeline.rows.canvas;
    canvas.addEventListener("focus", () => this.#tell());
    canvas.addEventListener("blur", () => this.tooltip.hide());
  }

  #zoom(factor) {
    const { start, end } = this.trace.steps;
    this.timeline.zoom(factor, (start[this.step] + end[this.step]) / 2);
  }

  #key(event) {
    const { target, key } = event,
      native =
        target.matches("select") || ((key === " " || key === "Enter") && target.matches("button, summary"));
    if (native || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowRight: () => this.goTo(this.step + (event.shiftKey ? 10 : 1)),
      ArrowLeft: () => this.goTo(this.step - (event.shiftKey ? 10 : 1)),
      ArrowDown: () => this.#selectNext(1),
      ArrowUp: () => this.#selectNext(-1),
      Escape: () => this.select(null),
      Home: () => this.goTo(0),
      End: () => this.goTo(this.trace.numSteps - 1),
      " ": () => this.toggle(),
      "+": () => this.#zoom(0.5),
      "=": () => this.#zoom(0.5),
      "-": () => this.#zoom(2),
      0: () => this.timeline.fit(),
    };
    if (!actions[key]) return;
    event.preventDefault();
    actions[key]();
    if (document.activeElement === this.timeline.rows.canvas) this.#tell();
  }

  #selectNext(by) {
    const last = this.trace.rows.length - 1;
    this.select(this.selected === null ? (by > 0 ? 0 : last) : clamp(this.selected + by, 0, last));
  }

  #tell() {
    if (this.selected === null) return;
    this.timeline.rows.paint();
    const bounds = this.timeline.rows.canvas.getBoundingClientRect(),
      { rowHeight, rows } = this.timeline,
      { letter } = this.trace.rows[this.selected];
    const lines = [
      `${letter} · step ${this.words.name(this.step)}`,
      this.words.doing(this.selected, this.step),
      ...this.words.facts(this.selected).slice(1),
    ];
    const x = clamp(this.timeline.x(this.trace.steps.end[this.step]), GUTTER, rows.width);
    this.tooltip.show(
      lines,
      bounds.left + x,
      bounds.top + (this.selected + 1) * rowHeight - rows.holder.scrollTop,
    );
  }
}

window.app = new App(JSON.parse(document.getElementById("data").textContent));
