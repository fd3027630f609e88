//! Seeded problems that are hard and feasible by construction.

use omniheap_plan::{Buffer, Problem, Region};

/// A small seeded generator.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns a number below `limit`, as an index.
    pub(crate) fn index(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).expect("lists fit memory")
    }

    /// True once in `of` times.
    pub(crate) fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// A rectangle of ticks and bytes.
#[derive(Clone, Copy)]
struct Cut {
    t0: u64,
    t1: u64,
    b0: u64,
    b1: u64,
}

impl Cut {
    fn area(self) -> u64 {
        (self.t1 - self.t0) * (self.b1 - self.b0)
    }
}

/// Parameters of a generated problem.
struct Shape {
    count: usize,
    unit: u64,
    ticks: u64,
    slack: u64,
    mode: u64,
    pinwheels: bool,
    time_cuts: u64,
    even: bool,
}

/// Capacity that all problems fit into.
pub(crate) const CAPACITY: u64 = 1 << 20;

/// Makes the problem of a seed, and a description of its shape.
pub(crate) fn problem(seed: u64) -> (Problem, String) {
    let mut rng = Rng(seed.wrapping_mul(77_777).wrapping_add(1));
    let count = 60 + rng.index(341);
    make(count, rng)
}

/// Makes a problem with about this many buffers.
pub(crate) fn sized(seed: u64, count: usize) -> (Problem, String) {
    make(count, Rng(seed.wrapping_mul(77_777).wrapping_add(2)))
}

fn make(count: usize, mut rng: Rng) -> (Problem, String) {
    let shape = Shape {
        count,
        unit: [1, 1024][rng.index(2)],
        ticks: [64, 256, 1024, 1 << 20][rng.index(4)],
        slack: [0, 2, 5, 10][rng.index(4)],
        mode: rng.below(4),
        pinwheels: rng.once_in(2),
        time_cuts: 35 + rng.below(30),
        even: rng.once_in(2),
    };
    let mut cuts = cut(&shape, &mut rng);
    if shape.slack > 0 {
        loosen(&shape, &mut cuts, &mut rng);
    }
    for i in (1..cuts.len()).rev() {
        cuts.swap(i, rng.index(i as u64 + 1));
    }
    let mut problem = Problem::new(Region::bounded(CAPACITY));
    for c in &cuts {
        problem.push(Buffer::new(c.b1 - c.b0, c.t0, c.t1));
    }
    let Shape { unit, ticks, slack, mode, pinwheels, even, .. } = shape;
    let text = format!(
        "n={} unit={unit} ticks={ticks} slack={slack}% mode={mode} pinwheels={pinwheels} even={even}",
        cuts.len()
    );
    (problem, text)
}

fn cut(shape: &Shape, rng: &mut Rng) -> Vec<Cut> {
    let mut cuts = vec![Cut { t0: 0, t1: shape.ticks, b0: 0, b1: CAPACITY }];
    let mut failures = 0;
    while cuts.len() < shape.count && failures < 10_000 {
        let mut at = rng.index(cuts.len() as u64);
        for _ in 0..if shape.even { 2 } else { 0 } {
            let other = rng.index(cuts.len() as u64);
            at = if cuts[other].area() > cuts[at].area() { other } else { at };
        }
        let c = cuts[at];
        let (ticks, units) = (c.t1 - c.t0, (c.b1 - c.b0) / shape.unit);
        if shape.pinwheels && rng.below(10) < 3 && ticks >= 3 && units >= 3 {
            cuts.swap_remove(at);
            pinwheel(c, shape.unit, rng, &mut cuts);
        } else if rng.below(100) < shape.time_cuts {
            if ticks < 2 {
                failures += 1;
                continue;
            }
            let t = c.t0 + 1 + rng.below(ticks - 1);
            cuts.swap_remove(at);
            cuts.extend([Cut { t1: t, ..c }, Cut { t0: t, ..c }]);
        } else {
            if units < 2 {
                failures += 1;
                continue;
            }
            let b = c.b0 + shape.unit * (1 + rng.below(units - 1));
            cuts.swap_remove(at);
            cuts.extend([Cut { b1: b, ..c }, Cut { b0: b, ..c }]);
        }
    }
    cuts
}

/// Five rectangles that no straight cut divides.
fn pinwheel(c: Cut, unit: u64, rng: &mut Rng, cuts: &mut Vec<Cut>) {
    let ta = c.t0 + 1 + rng.below(c.t1 - c.t0 - 2);
    let tb = ta + 1 + rng.below(c.t1 - ta - 1);
    let units = (c.b1 - c.b0) / unit;
    let ua = 1 + rng.below(units - 2);
    let ub = ua + 1 + rng.below(units - ua - 1);
    let (ba, bb) = (c.b0 + ua * unit, c.b0 + ub * unit);
    cuts.extend([
        Cut { t1: tb, b1: ba, ..c },
        Cut { t0: tb, b1: bb, ..c },
        Cut { t0: ta, b0: bb, ..c },
        Cut { t1: ta, b0: ba, ..c },
        Cut { t0: ta, t1: tb, b0: ba, b1: bb },
    ]);
}

/// Takes away about `slack` percent: whole buffers, bytes, ticks, or both.
fn loosen(shape: &Shape, cuts: &mut Vec<Cut>, rng: &mut Rng) {
    if shape.mode == 0 {
        let mut left = shape.ticks * CAPACITY / 100 * shape.slack;
        for _ in 0..2_000 {
            let at = rng.index(cuts.len() as u64);
            if cuts.len() > 50 && cuts[at].area() <= left {
                left -= cuts.swap_remove(at).area();
            }
        }
        return;
    }
    for c in cuts {
        let factor = if shape.mode == 3 { 3 } else { 2 };
        if shape.mode == 3 && rng.below(3) > 0 {
            continue;
        }
        let part = |whole: u64, rng: &mut Rng| whole * rng.below(shape.slack * factor + 1) / 100;
        if shape.mode != 2 {
            let units = (c.b1 - c.b0) / shape.unit;
            c.b1 -= part(units, rng).min(units - 1) * shape.unit;
        }
        if shape.mode != 1 {
            let ticks = c.t1 - c.t0;
            c.t1 -= part(ticks, rng).min(ticks - 1);
        }
    }
}

/// Buffers whose sizes and lifetimes both span several orders of magnitude, like those of a training step.
pub(crate) fn large(seed: u64, count: u64) -> Problem {
    let mut rng = Rng(seed);
    let mut problem = Problem::new(Region::unbounded());
    for _ in 0..count {
        let size = 256 << rng.below(14);
        let size = size + rng.below(size);
        let reach = 8 << rng.below(12);
        let life = 1 + rng.below(reach);
        let start = rng.below(4 * count);
        problem.push(Buffer::new(size, start, start + life));
    }
    problem
}
