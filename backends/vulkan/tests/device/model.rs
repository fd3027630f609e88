//! Random operations against a copy in host memory. `OMNIHEAP_OPERATIONS` says how many; a seed is in every failure.
use crate::rig::{MAIN, Rig, at, free, normal, pattern, transfer};
use omniheap_core::{Backend, Move, Point, TimelineId};
use omniheap_vulkan::{Block, Copies, Existing, Feature, Vulkan};

crate::cases! {
    random_operations_match_the_model if |_| true;
    the_kernel_matches_the_model_too if |vulkan| vulkan.has(Feature::BufferDeviceAddress);
    timelines_that_change_queues_match_the_model_too if |_| true;
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Returns a range inside `len` bytes, often short.
    fn range(&mut self, len: u64) -> (u64, u64) {
        let start = self.below(len);
        let most = (len - start).min(1 << self.below(16));
        (start, self.below(most) + 1)
    }
}

/// A block, what it should hold, and the timeline that touched it last.
struct Tracked {
    block: Block,
    bytes: Vec<u8>,
    last: TimelineId,
}

struct World {
    vulkan: Vulkan,
    lines: Vec<TimelineId>,
    live: Vec<Tracked>,
    random: Random,
}

fn random_operations_match_the_model(rig: &Rig) {
    run(rig.open());
}

fn the_kernel_matches_the_model_too(rig: &Rig) {
    run(rig.open_with(rig.options.copies(Copies::Kernel)));
}

/// One queue under two names: timelines then change queues even where the device has only one.
#[expect(unsafe_code, reason = "wraps a device, as an engine does")]
fn timelines_that_change_queues_match_the_model_too(rig: &Rig) {
    let owner = rig.open();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let all = [Feature::TimelineSemaphore, Feature::BufferDeviceAddress];
    let enabled: Vec<_> = all.into_iter().filter(|feature| owner.has(*feature)).collect();
    let existing = Existing {
        entry: owner.ash_entry().cloned().unwrap(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        queues: &[(family, queue), (family, queue)],
        enabled: &enabled,
    };
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile; one thread uses both names.
    run(unsafe { Vulkan::wrap(existing, rig.options) }.unwrap());
}

fn run(vulkan: Vulkan) {
    let count = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|n| n.parse().ok());
    let times = vulkan.as_timelines().expect("always");
    let lines = vec![MAIN, times.open().unwrap(), times.open().unwrap()];
    let mut world = World { vulkan, lines, live: Vec::new(), random: Random(0x5eed) };
    for step in 0..count.unwrap_or(3_000u64) {
        if step > 0 && step.is_multiple_of(100_000) {
            eprintln!("{step} operations");
        }
        world.step(step);
    }
    while let Some(tracked) = world.live.pop() {
        world.verify(&tracked);
    }
}

impl World {
    fn step(&mut self, step: u64) {
        match self.random.below(100) {
            _ if self.live.len() < 2 => self.allocate(step),
            0 if self.live.len() < 24 => self.allocate(step),
            1 if self.live.len() > 4 => self.release(),
            2..=21 => self.fill(),
            22..=54 => self.copy(),
            55..=64 => self.read(),
            _ => self.write(step),
        }
    }

    fn allocate(&mut self, step: u64) {
        let heaps = normal(&self.vulkan);
        let heap = heaps[usize::try_from(self.random.below(heaps.len() as u64)).unwrap()];
        let size = 1 + self.random.below(100_000);
        let block = self.vulkan.allocate(heap, size).expect("little is live");
        let bytes = pattern(step, usize::try_from(size).unwrap());
        transfer(&self.vulkan).write(MAIN, at(&block, 0), &bytes).unwrap();
        self.live.push(Tracked { block, bytes, last: MAIN });
    }

    fn release(&mut self) {
        let index = self.pick();
        let tracked = self.live.swap_remove(index);
        self.verify(&tracked);
        free(&self.vulkan, tracked.block).unwrap();
    }

    fn pick(&mut self) -> usize {
        usize::try_from(self.random.below(self.live.len() as u64)).unwrap()
    }

    /// Returns a timeline that runs after whatever touched the block last; often the same.
    fn line_for(&mut self, index: usize) -> TimelineId {
        let choice = usize::try_from(self.random.below(8 * self.lines.len() as u64)).unwrap();
        let line = self.lines.get(choice).copied().unwrap_or(self.live[index].last);
        self.after(line, self.live[index].last);
        self.live[index].last = line;
        line
    }

    fn after(&self, line: TimelineId, other: TimelineId) {
        if line != other {
            let times = self.vulkan.as_timelines().expect("always");
            let epoch = times.mark(other).unwrap();
            times.order(line, Point { timeline: other, epoch }).unwrap();
        }
    }

    fn write(&mut self, step: u64) {
        let index = self.pick();
        let line = self.line_for(index);
        let (start, size) = self.random.range(self.live[index].bytes.len() as u64);
        let fresh = pattern(step, usize::try_from(size).unwrap());
        let tracked = &mut self.live[index];
        transfer(&self.vulkan).write(line, at(&tracked.block, start), &fresh).unwrap();
        tracked.bytes[bounds(start, size)].copy_from_slice(&fresh);
    }

    fn fill(&mut self) {
        let index = self.pick();
        let line = self.line_for(index);
        let (start, size) = self.random.range(self.live[index].bytes.len() as u64);
        let value = self.random.below(256).to_le_bytes()[0];
        let tracked = &mut self.live[index];
        transfer(&self.vulkan).fill(line, at(&tracked.block, start), size, value).unwrap();
        tracked.bytes[bounds(start, size)].fill(value);
    }

    fn copy(&mut self) {
        let (from, to) = (self.pick(), self.pick());
        if from == to {
            return;
        }
        let line = self.line_for(to);
        self.after(line, self.live[from].last);
        self.live[from].last = line;
        let short = self.live[from].bytes.len().min(self.live[to].bytes.len()) as u64;
        let (start, size) = self.random.range(short);
        let into = self.random.below(self.live[to].bytes.len() as u64 - size + 1);
        // In one piece, or in as many as make it worth a dispatch.
        let piece = size.div_ceil(1 + self.random.below(8));
        let moves: Vec<_> = (0..size.div_ceil(piece))
            .map(|n| Move {
                from: at(&self.live[from].block, start + n * piece),
                to: at(&self.live[to].block, into + n * piece),
                size: piece.min(size - n * piece),
            })
            .collect();
        transfer(&self.vulkan).copy(line, &moves).unwrap();
        let moved = self.live[from].bytes[bounds(start, size)].to_vec();
        self.live[to].bytes[bounds(into, size)].copy_from_slice(&moved);
    }

    fn read(&mut self) {
        let index = self.pick();
        let line = self.line_for(index);
        let (start, size) = self.random.range(self.live[index].bytes.len() as u64);
        let tracked = &self.live[index];
        let mut seen = vec![0; usize::try_from(size).unwrap()];
        transfer(&self.vulkan).read(line, at(&tracked.block, start), &mut seen).unwrap();
        assert!(seen == tracked.bytes[bounds(start, size)], "seed 0x5eed, {start} + {size}");
    }

    fn verify(&self, tracked: &Tracked) {
        let mut seen = vec![0; tracked.bytes.len()];
        transfer(&self.vulkan).read(tracked.last, at(&tracked.block, 0), &mut seen).unwrap();
        assert!(seen == tracked.bytes, "seed 0x5eed");
    }
}

fn bounds(start: u64, size: u64) -> core::ops::Range<usize> {
    usize::try_from(start).unwrap()..usize::try_from(start + size).unwrap()
}
