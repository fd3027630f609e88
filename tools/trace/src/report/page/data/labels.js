// Names and tags: a tree in which a label is its parent's path and one more part.
class Labels {
  constructor(labels) {
    this.text = [""];
    this.parent = [0];
    for (const label of labels) { this.text.push(label.text); this.parent.push(label.parent); }
  }
  get any() { return this.text.length > 1; }
  /** Whether names stand below tags. */
  get tagged() { return this.parent.some((parent) => parent > 0); }
  parts(label) {
    const parts = [];
    for (let at = label; at; at = this.parent[at]) parts.unshift(this.text[at]);
    return parts;
  }
  path(label) { return this.parts(label).join(" / "); }
  /** The end of a path, where it is told apart. */
  short(label) {
    const parent = this.parent[label];
    if (!parent) return this.text[label];
    return `${this.parent[parent] ? "… / " : ""}${this.text[parent]} / ${this.text[label]}`;
  }
  /** Sums with everything below, and the children that have any, heaviest first. */
  sums(own) {
    const sum = Float64Array.from(own);
    for (let label = sum.length - 1; label > 0; label -= 1) sum[this.parent[label]] += sum[label];
    const children = new Map();
    for (let label = 1; label < sum.length; label += 1) {
      if (sum[label] <= 0) continue;
      const parent = this.parent[label];
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(label);
    }
    for (const list of children.values()) list.sort((a, b) => sum[b] - sum[a]);
    return { sum, children };
  }
  /** The labels that get a colour: from the top down, the heaviest is split as long as there are colours for its parts. One
   * that is nearly everything is split in any case, if the colours still cover most: call stacks share their first frames,
   * which tell nothing apart. */
  heaviest(own) {
    const { sum, children } = this.sums(own);
    const byWeight = (labels) => [...labels].sort((a, b) => sum[b] - sum[a]);
    let groups = children.get(0) ?? [];
    const entire = new Set();
    for (let turn = 0; turn < 256 && groups.length < SHOWN; turn += 1) {
      const open = groups.filter((label) => children.has(label) && !entire.has(label) && own[label] < 0.1 * sum[label]);
      if (!open.length) break;
      const [heaviest] = byWeight(open);
      const split = groups.filter((label) => label !== heaviest).concat(children.get(heaviest));
      const covered = byWeight(split).slice(0, SHOWN).reduce((all, label) => all + sum[label], 0);
      const worthIt = split.length <= SHOWN || (sum[heaviest] > 0.8 * sum[0] && covered > 0.75 * sum[0]);
      if (worthIt) groups = split; else entire.add(heaviest);
    }
    return byWeight(groups).slice(0, SHOWN);
  }
}
