// Defragmentation: each pass with the map before and after it.
function miniature(app, moment) {
  const canvas = make("canvas");
  const paint = () => {
    const blocks = moment.blocks.slice(0, 64);
    const { context, width } = surface(canvas, blocks.length * 18 + 4);
    blocks.forEach((block, index) => {
      caption(context, `block ${block.block}`, 2, index * 18 + 13, 68, style("--soft"));
      paintBlock(context, app, block, { x: 70, y: index * 18 + 2, width: width - 74, height: 14 }, { from: 0, to: block.size });
    });
  };
  return { canvas, paint };
}

panel({
  id: "passes",
  title: "Defragmentation",
  offered: (app) => app.report.defragmentation.length > 0,
  build(app, body) {
    const paints = [];
    for (const pass of app.report.defragmentation) {
      const box = make("div", undefined, "case");
      box.append(make("b", `${pass.title}: ${counted(pass.moves, "move")}, ${bytes(pass.moved_bytes)}`));
      for (const [name, index] of [["Before", pass.before], ["After", pass.after]]) {
        if (index === null) continue;
        const moment = app.report.moments[index];
        const held = `${bytes(reservedIn(moment))} reserved in ${counted(moment.blocks.length, "block")}`;
        box.append(make("p", `${name}: ${held}, largest hole ${bytes(largestHole(moment))}`));
        const { canvas, paint } = miniature(app, moment);
        box.append(canvas);
        paints.push(paint);
      }
      body.append(box);
    }
    const draw = framed(() => paints.forEach((paint) => paint()));
    draw();
    return { draw, update: (part) => { if (part === "groups" || part === "hits") draw(); } };
  },
});
