// Ticks and their words, beside and below the plot, never on it.

/** Bytes, up the left side. Returns the values of the ticks. */
function paintBytesAxis(canvas, view) {
  const { context, width, height } = surface(canvas);
  const step = niceStep(view.height, Math.max(2, height / 56), 2);
  context.textAlign = "right";
  context.fillStyle = style("--soft");
  const ticks = [];
  for (let value = Math.ceil(view.low / step) * step; value <= view.high; value += step) {
    const y = height - ((value - view.low) / view.height) * height;
    ticks.push(value);
    context.fillText(value === 0 ? "0" : byteTick(value, step, view.high), width - 6, Math.max(10, Math.min(height - 2, y + 4)));
  }
  return ticks;
}

/** Time or events, below. The axis ends at the last event, and says so. */
function paintTimeAxis(canvas, view) {
  const { context, width } = surface(canvas);
  context.fillStyle = style("--soft");
  context.strokeStyle = style("--line");
  const step = niceStep(view.width, Math.max(2, width / 120));
  const mark = (place, x, align, text) => {
    context.textAlign = align;
    context.fillText(text, x, 18);
    const at = ((place - view.from) / view.width) * width;
    context.beginPath(); context.moveTo(at, 0); context.lineTo(at, 5); context.stroke();
    return context.measureText(text).width;
  };
  const precise = step / 100;
  const end = width - mark(view.to, width - 1, "right", view.axis.tick(view.to, Math.max(precise, 1))) - 12;
  let free = mark(view.from, 1, "left", view.axis.tick(view.from, view.from === 0 ? step : Math.max(precise, 1))) + 12;
  for (let place = (Math.floor(view.from / step) + 1) * step; place < view.to; place += step) {
    const x = ((place - view.from) / view.width) * width;
    const text = view.axis.tick(place, step);
    const half = context.measureText(text).width / 2;
    if (x - half < free || x + half > end) continue;
    mark(place, x, "center", text);
    free = x + half + 12;
  }
}
