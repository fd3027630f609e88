// Mouse, touch and keys of the timeline.
const TIMELINE_KEYS = "w and s zoom, a and d pan, 0 shows everything, p goes to the peak, comma and period step by one event, "
  + "f fits the chosen allocation, / searches. With the timeline in focus, arrow keys pan and zoom too. "
  + "The wheel zooms in time, with Shift it pans, with Ctrl it zooms in bytes; a double click fits what is under it.";

/** Makes a timeline follow the pointer and the wheel. */
function followPointer(timeline, canvas) {
  const { view } = timeline;
  const place = (event) => view.from + (within(canvas, event)[0] / canvas.clientWidth) * view.width;
  const value = (event) => view.high - (within(canvas, event)[1] / canvas.clientHeight) * view.height;
  canvas.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    // Zooming out of the whole scrolls the page: nobody is caught above the timeline.
    if (view.isWhole && !sideways && event.deltaY > 0) return;
    event.preventDefault();
    const factor = Math.exp(event.deltaY * 0.0015);
    if (sideways) view.pan(((event.deltaX || event.deltaY) / canvas.clientWidth) * view.width);
    else if (event.ctrlKey || event.metaKey) view.zoomBytes(value(event), factor);
    else view.zoom(place(event), factor);
    timeline.draw();
  }, { passive: false });
  pointers(canvas, {
    drag: (dx, dy) => {
      view.pan((-dx / canvas.clientWidth) * view.width);
      view.panBytes((dy / canvas.clientHeight) * view.height);
      timeline.draw();
    },
    pinch: (factor, event) => { view.zoom(place(event), factor); timeline.draw(); },
    click: (event) => timeline.click(event),
  });
  canvas.addEventListener("dblclick", (event) => timeline.fit(event));
  canvas.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") timeline.hover(event); });
  canvas.addEventListener("pointerleave", (event) => timeline.leave(event));
}

/** Makes a timeline follow keys: letters anywhere on the page, arrows while it has the focus. */
function followKeys(timeline, canvas) {
  const { view, app } = timeline;
  const zoom = (factor) => view.zoom(timeline.focusPlace(), factor);
  const pan = (share) => view.pan(share * view.width);
  const keys = {
    w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => pan(-0.15), d: () => pan(0.15), 0: () => view.reset(),
    p: () => app.select(app.peak), f: () => timeline.fitAllocation(),
    ",": () => app.select(app.event - 1), ".": () => app.select(app.event + 1),
  };
  const arrows = { ArrowUp: keys.w, ArrowDown: keys.s, ArrowLeft: keys.a, ArrowRight: keys.d };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    const act = keys[event.key.toLowerCase()] ?? (document.activeElement === canvas ? arrows[event.key] : undefined);
    if (!act) return;
    event.preventDefault();
    act();
    timeline.draw();
  }, { signal: app.ends });
}
