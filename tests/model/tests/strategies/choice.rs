//! Choice of a hole by TLSF, against lists that are searched from their start: the documentation's algorithm without
//! its bitmaps, rings and nodes.
use omniheap_core::strategy::{Key, Strategy, Tlsf};
use omniheap_core::{Align, Class, Layout, Span};
use omniheap_model::Random;
use std::collections::BTreeMap;

const BLOCK: u64 = 1 << 16;
/// Holes of the own bin, and larger bins, that are looked at before every hole is.
const TRIES: usize = 4;

/// The number of a size's list: 32 for each power of two, and one for each smaller size.
fn bin_of(size: u64) -> u64 {
    if size < 32 {
        size
    } else {
        u64::from(size.ilog2() - 4) * 32 + (size >> (size.ilog2() - 5)) % 32
    }
}

/// The first list of which every hole is large enough.
fn bin_that_fits(size: u64) -> u64 {
    let mut first = bin_of(size);
    if size > 32 && bin_of(size - 1) == first {
        first += 1;
    }
    first
}

/// One block: where its holes and its live spans are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lists {
    granularity: Align,
    /// Holes by list, the one that was made last first.
    bins: BTreeMap<u64, Vec<Span>>,
    live: BTreeMap<u64, (u64, Class)>,
}

impl Lists {
    fn new(granularity: Align) -> Self {
        let mut lists = Self { granularity, bins: BTreeMap::new(), live: BTreeMap::new() };
        lists.add(Span { offset: 0, size: BLOCK });
        lists
    }

    fn add(&mut self, hole: Span) {
        self.bins.entry(bin_of(hole.size)).or_default().insert(0, hole);
    }

    fn remove(&mut self, hole: Span) {
        let list = self.bins.get_mut(&bin_of(hole.size)).expect("it has a list");
        list.retain(|other| *other != hole);
        self.bins.retain(|_, list| !list.is_empty());
    }

    /// A hole that stays in its list keeps its place there.
    fn change(&mut self, from: Span, to: Span) {
        if bin_of(from.size) != bin_of(to.size) {
            self.remove(from);
            return self.add(to);
        }
        let list = self.bins.get_mut(&bin_of(from.size)).expect("it has a list");
        *list.iter_mut().find(|hole| **hole == from).expect("it is in it") = to;
    }

    fn hole(&self, is: impl Fn(&Span) -> bool) -> Option<Span> {
        self.bins.values().flatten().copied().find(is)
    }

    /// Returns the start of a request in a hole.
    fn start_in(&self, hole: Span, layout: Layout, class: Class) -> Option<u64> {
        let granule = self.granularity;
        let mut start = layout.align.up(hole.offset)?;
        if let Some((offset, (size, other))) = self.live.range(..hole.offset).next_back()
            && *other != class
            && granule.down(offset + size - 1) == granule.down(start)
        {
            start = layout.align.max(granule).up(start)?;
        }
        let end = start + layout.size;
        let next = self.live.range(hole.offset..).next();
        let meets = next.is_some_and(|(offset, (_, other))| {
            *other != class && granule.down(end - 1) == granule.down(*offset)
        });
        (end <= hole.end() && !meets).then_some(start)
    }

    fn find(&self, layout: Layout, class: Class) -> Option<(Span, u64)> {
        let fits = |hole: &Span| Some((*hole, self.start_in(*hole, layout, class)?));
        let own = bin_of(layout.size);
        let from = |bin: u64| self.bins.range(bin..).map(|(_, list)| list);
        let nearest = from(own).next().and_then(|list| fits(&list[0]));
        let few = || self.bins.get(&own)?.iter().take(TRIES).find_map(fits);
        let larger =
            || from(bin_that_fits(layout.size)).take(TRIES).find_map(|list| fits(&list[0]));
        let slack = (self.granularity.get() - 1) * 2 + layout.align.get() - 1;
        let sure = || fits(&from(bin_that_fits(layout.size + slack)).next()?[0]);
        let any = || from(own).flatten().find_map(fits);
        nearest.or_else(few).or_else(larger).or_else(sure).or_else(any)
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Option<Span> {
        let (hole, start) = self.find(layout, class)?;
        let span = Span { offset: start, size: layout.size };
        let rest = Span { offset: span.end(), size: hole.end() - span.end() };
        if start > hole.offset {
            self.remove(hole);
            self.add(Span { offset: hole.offset, size: start - hole.offset });
            if rest.size > 0 {
                self.add(rest);
            }
        } else if rest.size > 0 {
            self.change(hole, rest);
        } else {
            self.remove(hole);
        }
        self.live.insert(start, (layout.size, class));
        Some(span)
    }

    fn free(&mut self, span: Span) {
        self.live.remove(&span.offset).expect("it lives");
        let before = self.hole(|hole| hole.end() == span.offset);
        let after = self.hole(|hole| hole.offset == span.end());
        let joined =
            |one: Span, other: Span| Span { offset: one.offset, size: one.size + other.size };
        match (before, after) {
            (None, None) => self.add(span),
            (None, Some(after)) => self.change(after, joined(span, after)),
            (Some(before), None) => self.change(before, joined(before, span)),
            (Some(before), Some(after)) => {
                self.remove(after);
                self.change(before, joined(joined(before, span), after));
            }
        }
    }

    /// Returns true if a free and the same request again would change nothing.
    fn would_come_back(&self, span: Span) -> bool {
        let mut after = self.clone();
        let (_, class) = self.live[&span.offset];
        after.free(span);
        after.allocate(Layout::new(span.size), class);
        after == *self
    }
}

/// Sizes of which many share a list, and some need several.
fn size(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 1 + random.below(40),
        1..=4 => 200 + random.below(60),
        5..=6 => 1 + random.below(1500),
        _ => 1 + random.below(9000),
    }
}

fn run(seed: u64, granularity: Align, aligned: bool) -> [u32; 2] {
    let (mut random, mut lists) = (Random(seed), Lists::new(granularity));
    let mut tlsf = Tlsf::new(granularity);
    tlsf.add_block(BLOCK).expect("a block");
    let (mut live, mut counts) = (Vec::<(Span, Key)>::new(), [0; 2]);
    let mut came_back = 0;
    for _ in 0..1500 {
        if random.below(100) < 52 || live.is_empty() {
            let align = if aligned { Align::of(1 << random.below(9)) } else { Align::ONE };
            let layout = Layout::new(size(&mut random)).align(align);
            let class = random.pick(&[Class::Linear, Class::Tiled]);
            assert_eq!(tlsf.would_fit(layout, class), lists.find(layout, class).is_some());
            let made = tlsf.allocate(layout, class).ok();
            assert_eq!(
                made.map(|grant| grant.span),
                lists.allocate(layout, class),
                "seed {seed}: {layout:?}"
            );
            counts[usize::from(made.is_some())] += 1;
            live.extend(made.map(|grant| (grant.span, grant.key)));
        } else {
            let (span, key) = live.swap_remove(random.index(live.len()));
            // TLSF may say no where it would not look further; never yes where something would change.
            if granularity == Align::ONE && tlsf.would_come_back(key) {
                assert!(lists.would_come_back(span), "seed {seed}: {span:?}");
                came_back += 1;
            }
            assert_eq!(tlsf.free(key).map(|grant| grant.span), Ok(span));
            lists.free(span);
        }
    }
    let holes = lists.bins.values().flatten();
    let largest = holes.map(|hole| hole.size).max().unwrap_or(0);
    assert_eq!(tlsf.usage().largest_hole, largest);
    assert!(granularity > Align::ONE || came_back > 20, "{came_back}");
    counts
}

#[test]
fn tlsf_takes_the_hole_that_plain_lists_take() {
    let mut counts = [0; 2];
    for seed in 0..12 {
        for (granularity, aligned) in [(1, false), (1, true), (64, false), (1024, true)] {
            let done = run(seed, Align::of(granularity), aligned);
            counts = [counts[0] + done[0], counts[1] + done[1]];
        }
    }
    assert!(counts.iter().all(|count| *count > 400), "{counts:?} refused and served");
}
