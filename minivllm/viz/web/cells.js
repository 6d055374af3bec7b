// How a KV block looks: whose it is, how full it is, and what has just happened to it.

// A block: filled as far as it holds tokens, striped by its owners' colours, hatched if only cached.
function block(context, x, y, w, h, cell, requests, label, faded) {
  context.globalAlpha = 1;
  context.fillStyle =
    cell.state === "cached"
      ? hatch(context, "#ffffff", "#c9d1da")
      : cell.state === "free"
        ? "#ffffff"
        : EMPTY;
  context.fillRect(x, y, w, h);
  const owners = cell.owners.map((row) => requests[row]);
  const colours = [...new Set(owners.map((request) => request.colour))].slice(0, 4);
  context.globalAlpha = faded ? 0.2 : 1;
  colours.forEach((colour, i) => {
    context.fillStyle = colour;
    context.fillRect(x, y + (h * i) / colours.length, w * cell.fill, h / colours.length);
  });
  context.globalAlpha = 1;
  context.strokeStyle = cell.state === "free" ? LINE : "#aab4bf";
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  if (w >= 16 && label && (owners.length || cell.state === "cached" || cell.named)) {
    const plain = owners.length && cell.fill > 0.95 && !faded && colours.length === 1;
    const size = fit(label, w, 11);
    if (owners.length && !plain) {
      context.fillStyle = "rgba(255,255,255,.82)";
      const half = Math.min(w / 2 - 2, size * 0.33 * label.length + 2);
      context.fillRect(x + w / 2 - half, y + h / 2 - size * 0.62, 2 * half, size * 1.24);
    }
    text(context, label, x + w / 2, y + h / 2 + 0.5, {
      size,
      align: "center",
      bold: true,
      colour: plain ? owners[0].ink : INK,
    });
  }
  if (cell.cached && owners.length && w >= 12) {
    triangle(context, [x + 1, y + h - 1, x + 8, y + h - 1, x + 1, y + h - 8], "#ffffff");
    triangle(context, [x + 1.5, y + h - 1.5, x + 6.5, y + h - 1.5, x + 1.5, y + h - 6.5], INK);
  }
}

// In a request's own table: a stroke for each owner of a shared block.
function ownerCount(context, x, y, n) {
  context.fillStyle = "#ffffff";
  context.fillRect(x + 1, y + 16, 25, 5);
  context.fillStyle = INK;
  const w = Math.min(5, 23 / n - 1);
  for (let i = 0; i < n && w > 0.5; i++) context.fillRect(x + 2 + i * (w + 1), y + 17, w, 3);
}

const EVENT_WORDS = {
  taken: "taken from the free blocks",
  hit: "found in the prefix cache",
  shared: "now shared (fork)",
  merged: "replaced a copy of the same content",
  copied: "copied into (copy on write)",
  evicted: "evicted from the prefix cache",
  swappedOut: "copied to the host and given back (swap)",
  swappedIn: "filled from the host (swap)",
};

// Lines in the disc in a block's corner, from its middle.
const SIGNS = {
  taken: [
    [-2.6, 0, 2.6, 0],
    [0, -2.6, 0, 2.6],
  ],
  hit: [
    [-2.6, 0, -0.6, 2.1],
    [-0.6, 2.1, 2.6, -2.1],
  ],
  copied: [
    [-2.6, 0, 2.6, 0],
    [0.4, -2, 2.6, 0],
    [0.4, 2, 2.6, 0],
  ],
  shared: [
    [-2.6, -1.3, 2.6, -1.3],
    [-2.6, 1.5, 2.6, 1.5],
  ],
  merged: [
    [-2.6, -1.3, 2.6, -1.3],
    [-2.6, 1.5, 2.6, 1.5],
  ],
  evicted: [
    [-2, -2, 2, 2],
    [-2, 2, 2, -2],
  ],
  swappedOut: [
    [0, 2.6, 0, -2.6],
    [-2, -0.4, 0, -2.6],
    [2, -0.4, 0, -2.6],
  ],
  swappedIn: [
    [0, -2.6, 0, 2.6],
    [-2, 0.4, 0, 2.6],
    [2, 0.4, 0, 2.6],
  ],
};

// What happened to a block in this step: a thick border and a sign in the corner.
function eventMark(context, x, y, w, h, events) {
  const lost = events.find((event) => event === "evicted" || event === "swappedOut"),
    event = lost ?? events[events.length - 1],
    colour = lost ? RED : INK;
  context.strokeStyle = colour;
  context.lineWidth = w < 12 ? 1.5 : 2;
  context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  if (w < 16) return;
  const cx = x + w - 2,
    cy = y + 2,
    r = 5.5,
    a = 2.6;
  context.fillStyle = colour;
  context.beginPath();
  context.arc(cx, cy, r, 0, 7);
  context.fill();
  context.strokeStyle = "white";
  context.lineWidth = 1;
  context.stroke();
  context.save();
  context.translate(cx, cy);
  stroke(context, SIGNS[event], "white", 1.4);
  context.restore();
}
