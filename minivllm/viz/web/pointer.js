// The mouse (or finger) on the pictures: point for facts, click to select, drag and wheel to move in time.

function listenTo(app, pane) {
  const { canvas } = pane,
    inTime = pane === app.timeline.rows || pane === app.timeline.budget;
  let down = null;
  canvas.addEventListener("pointermove", (event) => {
    if (down && inTime && Math.abs(event.clientX - down.x) > 3) down.dragged = true;
    if (down?.dragged) {
      app.timeline.pan(app.timeline.time(down.last) - app.timeline.time(event.clientX));
      down.last = event.clientX;
      return app.tooltip.hide();
    }
    const box = pane.find(event);
    canvas.style.cursor = box ? "pointer" : "default";
    app.blocks.light(box?.block ?? null);
    if (box)
      app.tooltip.show(
        app.words.box(box, app.timeline.time(pane.place(event).x)),
        event.clientX,
        event.clientY,
      );
    else app.tooltip.hide();
  });
  canvas.addEventListener("pointerleave", () => {
    app.blocks.light(null);
    app.tooltip.hide();
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    down = { x: event.clientX, last: event.clientX, dragged: false };
    if (inTime) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointercancel", () => (down = null));
  canvas.addEventListener("pointerup", (event) => {
    const clicked = down && !down.dragged;
    down = null;
    if (clicked) click(app, pane, event, inTime);
  });
  if (inTime)
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey && !event.deltaX) return; // the page scrolls as ever
        event.preventDefault();
        if (event.deltaX) app.timeline.pan(app.timeline.time(event.deltaX) - app.timeline.time(0));
        else app.timeline.zoom(1.0015 ** event.deltaY, app.timeline.time(pane.place(event).x));
      },
      { passive: false },
    );
}

// In the timeline a click goes to that moment and, on a row, selects it; a block selects its request, or
// the next of its owners. A second click on the letter lets go.
function click(app, pane, event, inTime) {
  const { x, y } = pane.place(event),
    box = pane.find(event);
  if (inTime) {
    const row = Math.floor((y - 3) / app.timeline.rowHeight);
    if (x >= GUTTER) app.goTo(app.trace.stepAt(app.timeline.time(x)));
    if (pane === app.timeline.rows && row >= 0 && row < app.trace.rows.length && (box || x < GUTTER))
      app.select(x < GUTTER && row === app.selected ? null : row);
    return;
  }
  if (box?.row !== undefined) return app.select(box.row === app.selected ? null : box.row);
  const owners = box?.owners ?? [];
  app.select(owners.length ? owners[(owners.indexOf(app.selected) + 1) % owners.length] : null);
}
