// What colours and lines stand for.
const LINES = {
  recorded: { color: "--text", border: "solid", dash: [] },
  model: { color: "--model", border: "dashed", dash: [7, 4] },
  away: { color: "--away", border: "dashed", dash: [3, 3] },
  capacity: { color: "--warn", border: "dashed", dash: [12, 4] },
  replay: { color: "--replay", border: "dotted", dash: [2, 3] },
};
const lineColor = (line) => style(LINES[line.origin].color);
const lineName = (line) => ({ recorded: "reserved (recorded)", away: line.name, capacity: line.name })[line.origin] ?? `reserved by ${line.name} (${line.origin})`;

class Legend {
  constructor(app) {
    this.app = app;
    this.box = make("div", undefined, "legend");
    this.draw();
  }
  update(part) { if (part === "groups") this.draw(); }
  entry(mark, text) {
    const item = make("span");
    item.append(mark, text);
    this.box.append(item);
  }
  draw() {
    const { groups, lines } = this.app;
    this.box.replaceChildren();
    for (const group of groups.shown) {
      const swatch = make("i");
      swatch.style.background = groupColor(group);
      this.entry(swatch, groups.name(group));
    }
    for (const line of lines) {
      const stroke = make("i", undefined, "stroke");
      stroke.style.borderTop = `2px ${LINES[line.origin].border} ${lineColor(line)}`;
      this.entry(stroke, lineName(line));
    }
  }
}

const colorChooser = (app) => chooser("Colour by", "color-by", app.groupings, (value) => app.color(value)).label;
