// What was live at the chosen moment: the largest, and sums by group and by name.
const ROWS = 100;

/** The columns of a table: title, whether it is text, what a row shows, what it is sorted by. */
const ALLOCATION_COLUMNS = [
  { title: "Allocation", text: true, say: (row) => row.name, key: (row) => row.name },
  { title: "Size", say: (row) => bytes(row.size), key: (row) => row.size },
  { title: "Share", say: (row) => percent(row.share), key: (row) => row.size },
  { title: "Tag", text: true, extra: true, offered: (app) => app.labels.tagged, say: (row) => row.tag, key: (row) => row.tag },
  { title: "Stream", extra: true, say: (row) => String(row.stream), key: (row) => row.stream },
  { title: "Lifetime", say: (row) => duration(row.life), key: (row) => row.life },
];
const SUM_COLUMNS = [
  { title: "Name", text: true, say: (row) => row.name, key: (row) => row.name },
  { title: "Size", say: (row) => bytes(row.size), key: (row) => row.size },
  { title: "Share", say: (row) => percent(row.share), key: (row) => row.size },
  { title: "Allocations", say: (row) => whole(row.count), key: (row) => row.count },
  { title: "Largest", extra: true, say: (row) => bytes(row.largest), key: (row) => row.largest },
];

const columnClass = (column) => `${column.text ? "text" : ""} ${column.extra ? "extra" : ""}`;

class LiveTable {
  constructor(app, head, table, more) {
    Object.assign(this, { app, head, table, more });
    this.mode = "largest";
    this.rows = ROWS;
    this.sort = { column: 1, down: true };
    this.draw = framed(() => this.fill());
  }
  update(part) {
    if (part === "event") this.rows = ROWS;
    if (part === "event" || part === "groups" || part === "allocation") this.draw();
  }
  show(mode) { this.mode = mode; this.sort = { column: 1, down: true }; this.rows = ROWS; this.draw(); }
  /** The live allocations that can be shown: all, or where they are sorted by size only the largest. There may be very many. */
  candidates() {
    const { store, event } = this.app;
    const live = store.liveAt(event);
    if (this.sort.column !== 1 || !this.sort.down || live.length <= this.rows) return live;
    const sizes = Float64Array.from(live, (index) => store.size[index]).sort();
    const least = sizes[sizes.length - this.rows];
    return live.filter((index) => store.size[index] >= least);
  }
  /** One row for each of them. */
  allocations() {
    const { store, event } = this.app;
    const total = store.live[event];
    return this.candidates().map((index) => ({
      index,
      name: this.app.name(index),
      tag: this.app.tag(index),
      group: this.app.groups.group[index],
      size: store.size[index],
      share: store.size[index] / total,
      stream: store.stream[index],
      life: store.lifetime(index),
    }));
  }
  /** One row for each key, with the sum of its allocations. */
  sums(keyOf, nameOf) {
    const { store, event, groups } = this.app;
    const found = new Map();
    for (const index of store.liveAt(event)) {
      const key = keyOf(index);
      if (!found.has(key)) found.set(key, { name: nameOf(key), group: groups.group[index], size: 0, count: 0, largest: 0, index });
      const sum = found.get(key);
      sum.size += store.size[index];
      sum.count += 1;
      if (store.size[index] > sum.largest) { sum.largest = store.size[index]; sum.index = index; }
    }
    for (const sum of found.values()) sum.share = sum.size / store.live[event];
    return [...found.values()];
  }
  data() {
    const { store, groups, labels } = this.app;
    if (this.mode === "groups") return [SUM_COLUMNS, this.sums((index) => groups.group[index], (group) => groups.name(group))];
    if (this.mode === "names") return [SUM_COLUMNS, this.sums((index) => store.label[index], (label) => labels.path(label) || "no name")];
    return [ALLOCATION_COLUMNS.filter((column) => column.offered?.(this.app) ?? true), this.allocations()];
  }
  fill() {
    const { store, event } = this.app;
    const [columns, rows] = this.data();
    const { key } = columns[this.sort.column];
    const order = (a, b) => (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : key(a) - key(b));
    rows.sort((a, b) => (this.sort.down ? order(b, a) : order(a, b)) || b.size - a.size);
    const live = store.liveAt(event).length;
    this.head.textContent = `At ${instant(store.time[event])} (event ${whole(event)}): ${bytes(store.live[event])} in ${counted(live, "allocation")}`;
    this.table.replaceChildren();
    this.fillHead(columns);
    const shown = rows.slice(0, this.rows);
    for (const each of shown) this.fillRow(columns, each);
    const rest = (this.mode === "largest" ? live : rows.length) - shown.length;
    this.more.hidden = rest === 0;
    this.more.textContent = `Show more: ${counted(rest, "row")} with ${bytes(store.live[event] - sumOf(shown, (each) => each.size))}`;
  }
  fillHead(columns) {
    const line = this.table.createTHead().insertRow();
    columns.forEach((column, at) => {
      const cell = make("th", undefined, columnClass(column));
      const sorted = this.sort.column === at;
      cell.setAttribute("aria-sort", sorted ? (this.sort.down ? "descending" : "ascending") : "none");
      cell.append(button(`${column.title}${sorted ? (this.sort.down ? " ▾" : " ▴") : ""}`, "Sort", () => {
        this.sort = { column: at, down: sorted ? !this.sort.down : !column.text };
        this.draw();
      }));
      line.append(cell);
    });
  }
  fillRow(columns, each) {
    const body = this.table.tBodies[0] ?? this.table.createTBody();
    const line = row(body, columns.map((column) => [column.say(each), columnClass(column)]));
    const path = this.app.labels.path(this.app.store.label[each.index]);
    const name = button(each.name, `Show its band: ${path}`, () => this.app.reveal(each.index));
    const swatch = make("i", undefined, "swatch");
    swatch.style.background = groupColor(each.group);
    line.cells[0].replaceChildren(swatch, name);
    if (this.mode === "largest" && each.index === this.app.allocation) line.className = "chosen";
  }
}

panel({
  id: "live",
  title: "Live at this moment",
  half: true,
  offered: (app) => app.store !== null,
  build(app, body) {
    const [head, table, scroll] = [make("p", undefined, "readout"), make("table"), make("div", undefined, "scroll")];
    const more = button("", "", () => { live.rows += 1000; live.draw(); });
    const live = new LiveTable(app, head, table, more);
    const choices = [["largest", "Largest"], ["groups", ""], ["names", "By name"]].filter(([value]) => value !== "names" || app.labels.any);
    const mode = tabs("live-mode", choices, (value) => live.show(value));
    mode.choose("largest");
    const nameGroups = () => mode.named("groups", `By ${GROUPINGS[app.groups.by].title}`);
    nameGroups();
    scroll.append(table, more);
    body.append(mode.box, head, scroll);
    live.draw();
    return { update: (part) => { if (part === "groups") nameGroups(); live.update(part); }, draw: live.draw };
  },
});
