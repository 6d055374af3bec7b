// The legends: each sample is drawn by the function that draws the picture.

const SAMPLE = { colour: "#0072B2", ink: "white", letter: "A" },
  SECOND = { colour: "#D55E00", ink: "white", letter: "B" };
const sampleBar = (kind) => (context) => bar(context, kind, SAMPLE.colour, 1, 24, 10, 18);
const sampleMark = (name) => (context) => MARKS[name](context, 13, 10, 8);
const sampleBlock =
  (cell, label, events = []) =>
  (context) => {
    const all = { state: "used", owners: [0], cached: false, fill: 1, ...cell };
    block(context, 3, 1, 18, 18, all, [SAMPLE, SECOND], label, false);
    if (events.length) eventMark(context, 3, 1, 18, 18, events);
  };
const solid = (colour) => (context) => {
  context.fillStyle = colour;
  context.fillRect(4, 3, 18, 14);
};
const none = { state: "free", owners: [], fill: 0 };

const TIMELINE_LEGEND = [
  ["waits without blocks", sampleBar("waiting")],
  ["parked: holds blocks, not served", sampleBar("parked")],
  ["swapped out", sampleBar("swapped")],
  ["prompt chunk", sampleBar("prefill")],
  ["recomputed", sampleBar("recompute")],
  ["decodes", sampleBar("decode")],
  ["first token (TTFT)", sampleMark("first")],
  ["longest gap (ITL), if a stall", (context) => bracket(context, 2, 24, 12)],
  ["preempted", sampleMark("preempted")],
  ["finished", sampleMark("finished")],
  ["decode tokens", solid(DECODE_BAR)],
  ["prompt tokens", solid(PROMPT_BAR)],
  [
    "token budget",
    (context) => {
      context.setLineDash([5, 3]);
      stroke(context, [[1, 10, 25, 10]], RED, 1.5);
    },
  ],
];
const BLOCKS_LEGEND = [
  ["free", sampleBlock(none, "")],
  ["used", sampleBlock({}, "A")],
  ["partly filled", sampleBlock({ fill: 0.5 }, "A")],
  ["shared", sampleBlock({ owners: [0, 1], state: "shared" }, "×2")],
  ["its owners", (context) => ownerCount(context, 0, -2, 3)],
  ["used and cached", sampleBlock({ cached: true }, "A")],
  ["only cached", sampleBlock({ ...none, state: "cached", cached: true }, "")],
  ["taken now", sampleBlock({}, "", ["taken"])],
  ["hit now", sampleBlock({}, "", ["hit"])],
  ["copied now", sampleBlock({}, "", ["copied"])],
  ["shared now", sampleBlock({}, "", ["shared"])],
  ["evicted now", sampleBlock(none, "", ["evicted"])],
  ["swapped out now", sampleBlock(none, "", ["swappedOut"])],
  ["swapped in now", sampleBlock({}, "", ["swappedIn"])],
];

function legend(list, entries) {
  for (const [words, draw] of entries) {
    const item = document.createElement("li"),
      canvas = document.createElement("canvas"),
      scale = window.devicePixelRatio || 1;
    canvas.width = 28 * scale;
    canvas.height = 22 * scale;
    canvas.setAttribute("aria-hidden", "true");
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.translate(0, 1);
    draw(context);
    item.append(canvas, words);
    list.append(item);
  }
}
