// How things look, in one place: the legend is drawn by the same functions as the picture.

const INK = "#1f2933",
  GREY = "#5f6b7a",
  LINE = "#d5dbe3",
  RED = "#b00020",
  EMPTY = "#f1f4f7";
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
// Height of a bar as a share of its row: kinds differ in height, tint and hatching, not in colour alone.
const HEIGHTS = { waiting: 0.12, parked: 0.34, swapped: 0.12, prefill: 0.86, recompute: 0.86, decode: 0.46 };
const PROMPT_BAR = "#5f6b7a",
  DECODE_BAR = "#b4bfcb";
const patterns = new Map();

// `amount` of a colour on white.
function tint(colour, amount) {
  const mixed = [1, 3, 5].map((i) => Math.round(255 - (255 - parseInt(colour.slice(i, i + 2), 16)) * amount));
  return `rgb(${mixed.join()})`;
}

function hatch(context, back, stripe) {
  const key = back + stripe;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = back;
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = stripe;
    pen.lineWidth = 1.6;
    pen.beginPath();
    for (const x of [-6, 0, 6]) {
      pen.moveTo(x - 1, 7);
      pen.lineTo(x + 7, -1);
    }
    pen.stroke();
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

function text(context, string, x, y, { size = 11, colour = INK, align = "left", bold = false } = {}) {
  context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(string, x, y);
}

// A bar of the timeline; y is the middle of its row.
function bar(context, kind, colour, x, w, y, rowHeight) {
  const h = Math.max(2, HEIGHTS[kind] * rowHeight);
  if (kind === "parked") {
    // Hollow: it holds memory and computes nothing.
    context.fillStyle = "white";
    context.fillRect(x, y - h / 2, w, h);
    context.strokeStyle = colour;
    context.lineWidth = 1.2;
    context.strokeRect(x + 0.6, y - h / 2, Math.max(0.5, w - 1.2), h);
    return h;
  }
  if (kind === "swapped") {
    context.setLineDash([4, 3]);
    stroke(context, [[x, y, x + w, y]], GREY, h);
    context.setLineDash([]);
    return h;
  }
  if (kind === "waiting") context.fillStyle = "#b9c2cc";
  else if (kind === "prefill") context.fillStyle = colour;
  else if (kind === "recompute") context.fillStyle = hatch(context, tint(colour, 0.3), colour);
  else context.fillStyle = tint(colour, 0.55);
  context.fillRect(x, y - h / 2, w, h);
  return h;
}

const MARKS = {
  first(context, x, y, size) {
    triangle(
      context,
      [x - size * 0.5, y - size * 0.6, x + size * 0.6, y, x - size * 0.5, y + size * 0.6],
      INK,
    );
  },
  preempted(context, x, y, size) {
    const r = size * 0.5;
    const cross = [
      [x - r, y - r, x + r, y + r],
      [x - r, y + r, x + r, y - r],
    ];
    stroke(context, cross, "white", 4.5);
    stroke(context, cross, RED, 2.2);
  },
  finished(context, x, y, size) {
    stroke(context, [[x, y - size, x, y + size]], INK, 2.2);
  },
};

// From one token to the next, where that took long.
function bracket(context, a, b, y) {
  const tick = 3,
    lines = [
      [a, y - tick, a, y],
      [a, y, b, y],
      [b, y, b, y - tick],
    ];
  stroke(context, lines, INK, 1);
}

// A triangle with a thin white border, so that it shows on any colour; corners are x, y, x, y, x, y.
function triangle(context, corners, fill) {
  const [a, b, c, d, e, f] = corners;
  context.beginPath();
  context.moveTo(a, b);
  context.lineTo(c, d);
  context.lineTo(e, f);
  context.closePath();
  context.fillStyle = fill;
  context.strokeStyle = "white";
  context.lineWidth = 1.5;
  context.stroke();
  context.fill();
}

// Lines, each [from x, from y, to x, to y].
function stroke(context, lines, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  for (const [a, b, c, d] of lines) {
    context.moveTo(a, b);
    context.lineTo(c, d);
  }
  context.stroke();
}

// A request's letter on its colour.
function chip(context, request, x, y, w = 30, h = 15) {
  context.fillStyle = request.colour;
  context.beginPath();
  context.roundRect(x, y - h / 2, w, h, 3);
  context.fill();
  text(context, request.letter, x + w / 2, y + 0.5, {
    size: fit(request.letter, w, 11),
    colour: request.ink,
    align: "center",
    bold: true,
  });
}

// A font size at which the text fits into w.
function fit(string, w, most) {
  return Math.min(most, (w - 3) / (0.66 * Math.max(1, string.length)));
}
