// What people can look for.
const SEARCH_HINT = "Name or tag, or size>64M, size<4K, life>10ms, stream:2, #42. Several words must all match.";

const compare = { ">": (a, b) => a > b, "<": (a, b) => a < b };

/** One word of a query as `{text}` or `{test(span)}`; `null` when it cannot be understood. A span is `{size, life, stream, index}`,
 * of which maps without a recording know the size only. */
function term(word) {
  const [, field, sign, value] = /^(size|life|stream)([<>:])(.*)$/i.exec(word) ?? [];
  if (/^#\d+$/.test(word)) return { test: (span) => span.index === Number(word.slice(1)) };
  if (!field) return { text: word.toLowerCase() };
  if (field.toLowerCase() === "stream") return sign === ":" && /^\d+$/.test(value) ? { test: (span) => span.stream === Number(value) } : null;
  const [key, bound] = field.toLowerCase() === "size" ? ["size", parseBytes(value)] : ["life", parseDuration(value)];
  if (bound === null || sign === ":") return null;
  return { test: (span) => compare[sign](span[key], bound) };
}

/** A query, understood: which labels fit, and which spans of those. */
class Query {
  constructor(text, labels) {
    const words = text.match(/"[^"]*"|\S+/g) ?? [];
    const terms = words.map((word) => (word.startsWith('"') ? { text: word.replaceAll('"', "").toLowerCase() } : term(word)));
    this.wrong = words.filter((_, at) => !terms[at]);
    this.tests = terms.filter((each) => each?.test).map((each) => each.test);
    const texts = terms.filter((each) => each?.text).map((each) => each.text);
    this.labels = Uint8Array.from(labels.text, (_, label) => {
      if (!texts.length) return 1;
      const path = labels.path(label).toLowerCase();
      return texts.every((part) => path.includes(part)) ? 1 : 0;
    });
  }
  fits(span) { return this.labels[span.label] === 1 && this.tests.every((test) => test(span)); }
}

/** The allocations that a query finds: their numbers in `list`, and a mark for each in `mark`. */
function findAll(query, store) {
  const [mark, list] = [new Uint8Array(store.allocations), []];
  const span = { index: 0, label: 0, size: 0, stream: 0, life: 0 };
  for (let index = 0; index < store.allocations; index += 1) {
    if (!query.labels[store.label[index]]) continue;
    span.index = index;
    span.label = store.label[index];
    span.size = store.size[index];
    span.stream = store.stream[index];
    span.life = store.lifetime(index);
    if (query.fits(span)) { mark[index] = 1; list.push(index); }
  }
  return { mark, list };
}
