// What is shown and chosen, and the panels that show it.

/** All panels, in the order of the page. */
const PANELS = [];

/**
 * Adds a panel: a section of the page in a file of its own.
 *
 * `id` and `title` name it; `half` lets two stand side by side. `offered(app)` says whether this report has what it
 * shows. `build(app, body)` fills the section and returns what it wants to be told: `update(part)` when something
 * changes (`event`, `allocation`, `groups`, `hits`, `moment`, `reveal`), `draw()` when sizes or colours do.
 */
function panel(definition) { PANELS.push(definition); }

/** A line of bytes over time: reserved, or away. */
class Line {
  constructor(name, origin, events, values) {
    Object.assign(this, { name, origin, events, values });
    this.peaks = new Peaks(values);
  }
  /** The last point at or before an event; -1 before the first. */
  point(event) { return this.events ? firstIndex(this.events.length, (at) => this.events[at] > event) - 1 : event; }
  at(event) { const point = this.point(event); return point < 0 ? 0 : this.values[point]; }
  /** The most in events `from..to`. */
  most(from, to) {
    const last = this.point(to - 1);
    return last < 0 ? 0 : this.values[this.peaks.at(Math.max(0, this.point(from)), last + 1)];
  }
  get top() { return this.values.length ? this.values[this.peaks.at(0, this.values.length)] : 0; }
}

class App {
  constructor(report, store, lines, ends) {
    // `ends` is aborted when the page shows another run: what listens to more than a panel of this one stops then.
    Object.assign(this, { report, store, lines, ends });
    this.labels = new Labels(report.labels);
    this.groupings = Object.entries(GROUPINGS).filter(([, grouping]) => grouping.offered(this)).map(([by, grouping]) => [by, grouping.title]);
    this.groups = new Groups(this.groupings[0][0], this);
    this.livePeaks = store && new Peaks(store.live);
    /** The chosen moment: after this event. */
    this.event = store ? this.peak : -1;
    /** The chosen allocation, or -1. */
    this.allocation = -1;
    /** What the search found, or `null` without one. */
    this.hits = null;
    /** The map of the report that is shown instead of the chosen moment's, by its index. */
    this.mapIndex = store?.placed ? null : report.moments.length - 1;
    this.shown = [];
  }
  get peak() { return this.livePeaks.at(0, this.store.n); }
  tell(part) { for (const each of this.shown) each.update?.(part); }
  draw() { for (const each of this.shown) each.draw?.(); }

  select(event) {
    this.event = Math.max(0, Math.min(this.store.n - 1, event));
    if (this.store.placed) this.mapIndex = null;
    this.tell("event");
  }
  /** Chooses an allocation, and a moment at which it is live. */
  pick(allocation) {
    this.allocation = allocation;
    if (allocation >= 0 && !this.store.isLive(allocation, this.event)) this.select(this.store.start[allocation]);
    this.tell("allocation");
  }
  /** Chooses an allocation and brings its band into view. */
  reveal(allocation) {
    this.pick(allocation);
    this.tell("reveal");
  }
  color(by) {
    this.groups = new Groups(by, this);
    this.tell("groups");
  }
  showMap(index) {
    this.mapIndex = index;
    this.tell("moment");
  }
  /** The map to show: of the chosen moment, or one that the report has. */
  get moment() {
    if (this.mapIndex !== null) return this.report.moments[this.mapIndex];
    if (this.momentCache?.event !== this.event) this.momentCache = { event: this.event, moment: momentAt(this.store, this.event) };
    return this.momentCache.moment;
  }
  find(text) {
    const query = text.trim() ? new Query(text, this.labels) : null;
    this.hits = query && { query, ...(this.store ? findAll(query, this.store) : { list: [], mark: null }) };
    this.tell("hits");
  }
  /** Whether a search is on and this span of a map is not among its hits. */
  isFaded(span) {
    if (!this.hits) return false;
    return span.allocation === undefined ? !this.hits.query.fits(span) : !this.hits.mark[span.allocation];
  }

  name(allocation) { return this.labels.text[this.store.label[allocation]] || `#${allocation}`; }
  tag(allocation) { return this.labels.text[this.labels.parent[this.store.label[allocation]]]; }
  /** The parts of its name: a tag and a name, or the frames of a stack. */
  frames(allocation) { return this.labels.parts(this.store.label[allocation]); }
  /** Everything that is known of an allocation, a line each. */
  describe(allocation, event) {
    return [`${this.frames(allocation).join(" / ") || "no name"}, #${allocation}`, ...this.facts(allocation, event)];
  }
  /** What is known of it beside its name. */
  facts(allocation, event) {
    const { store } = this;
    const [start, end] = [store.start[allocation], store.end[allocation]];
    const until = end < store.n ? instant(store.time[end]) : "the end";
    const lines = [
      `${exactBytes(store.size[allocation])}, stream ${store.stream[allocation]}`,
      `live from ${instant(store.time[start])} to ${until} (${duration(store.lifetime(allocation))})`,
    ];
    const place = placeAt(store, allocation, event);
    if (place) lines.push(`block ${place.block}, offset 0x${place.offset.toString(16)}${this.report.placed_by_model ? " (model)" : ""}`);
    const away = place && store.away?.say(place.block, event);
    if (away) lines.push(away);
    if (store.asked[allocation] <= event) lines.push("free asked for, not complete: a stream may still use it");
    return lines;
  }
}
