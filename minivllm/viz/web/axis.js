// The time axis, and times in words.

const GUTTER = 46,
  RIGHT = 14,
  AXIS = 22; // left and right of it, and its height

function drawAxis(context, timeline, width, y) {
  const [from, to] = timeline.view,
    tick = niceTick((to - from) / Math.max(2, (width - GUTTER) / 110));
  stroke(context, [[GUTTER, y + 0.5, width - RIGHT, y + 0.5]], LINE, 1);
  for (let time = Math.ceil(from / tick) * tick; time <= to; time += tick) {
    const x = timeline.x(time),
      label = duration(time, tick, to);
    stroke(context, [[x, y, x, y + 4]], "#9aa5b1", 1);
    const align = x < GUTTER + 14 ? "left" : x > width - RIGHT - 24 ? "right" : "center";
    const place = align === "right" ? Math.min(x + 12, width - 2) : x;
    text(context, label, place, y + 13, { size: 10.5, align, colour: GREY });
  }
}

// 1, 2 or 5 times a power of ten, at least `low`.
function niceTick(low) {
  const power = 10 ** Math.floor(Math.log10(low));
  return [1, 2, 5, 10].find((n) => n * power >= low) * power;
}

// µs in words, as exact as a difference of `exact` µs needs; the unit is that of `like`.
function duration(us, exact, like = us) {
  const [size, unit] = like >= 1e6 ? [1e6, "s"] : [1e3, "ms"];
  return `${(us / size).toFixed(clamp(Math.ceil(-Math.log10(Math.max(exact, 1) / size)), 0, 3))} ${unit}`;
}
