//! A scene of 1.5 times the memory that it may have: what is in view stays on the device, the rest waits in host memory. No frame waits for
//! what comes back: it draws a stand-in meanwhile.
//!
//! `cargo run --release --example 11_residents -- --backend auto|cuda|hip|vulkan|wgpu|host [--mib 512 --frames 120]`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::placement::Keyword as _;
use omniheap::residency::{Arena, HostStore, Resident, Residents};
use omniheap::shaders::SCALE;
use omniheap::transfer::Program;
use omniheap::{
    Allocation, AnyBackend, HeapId, Limits, Manager, PoolConfig, Request, TimelineId, UserPool,
};
use omniheap_examples::{Outcome, option, parameters, wait};
use std::{sync::Arc, time::Instant};

const ON: TimelineId = TimelineId::MAIN;
const LEVELS: usize = 16;
const SHOWN: usize = 10;

struct Scene {
    manager: Manager<AnyBackend>,
    residents: Residents<AnyBackend>,
    levels: Vec<(Arc<UserPool<AnyBackend>>, Allocation<AnyBackend>)>,
    program: Program<AnyBackend>,
    picture: Allocation<AnyBackend>,
    /// Drawn for levels that are away; as large as they are, so that every frame draws as much.
    stand_in: Allocation<AnyBackend>,
    frames: usize,
}

/// Milliseconds of frames.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    /// The time that so many of a hundred frames do not exceed.
    fn within(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * percent).div_ceil(100);
        sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    /// Prints median and 99th percentile, as ratios to a frame with all resident.
    fn print(&self, what: &str, whole: f64) {
        let (median, most) = (self.within(50), self.within(99));
        println!(
            "  {what}: {} frames, median {median:.3} ms = {:.2} of all resident, p99 {most:.3} ms = {:.2}",
            self.0.len(),
            median / whole,
            most / whole
        );
    }
}

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let number = |name, usual| option(name).map_or(Ok(usual), |text| text.parse::<u16>());
    let (size, frames) = (u64::from(number("mib", 4)?) << 20, number("frames", 8)?.into());
    let picture = manager.allocate(&Request::new(size).on(ON))?;
    let placed = picture.placed();
    println!("  picture: {} memory, because {}", placed.region.word(), placed.reason);
    let heap = manager.explain(&Request::new(size))?.placement.heaps.as_slice()[0];
    if manager.caps().heap_ids().any(|(id, about)| id == heap && about.page.is_none()) {
        return Err("no pool can sleep here: this memory has no pages; try --backend host".into());
    }
    let (residents, program) = (Residents::of(&manager), manager.load(&SCALE, 0)?);
    let mut levels = Vec::new();
    for byte in (40..).take(LEVELS) {
        let config = PoolConfig::new().sleepable().maximum(2 * size);
        let pool = Arc::new(manager.create_pool(heap, config)?);
        residents.add(&pool, Resident::to(HostStore::new()))?;
        let level = pool.allocate(&Request::new(size).on(ON))?;
        level.fill(0, size, byte)?;
        levels.push((pool, level));
    }
    let stand_in = manager.allocate(&Request::new(size).on(ON))?;
    stand_in.fill(0, size, 1)?;
    // A third is away, and one level more while it changes places with another.
    let away = (LEVELS as u64 / 3 + 2) * size;
    Arena::of_process().prepare_pinned(manager.backend(), away)?;
    let scene = Scene { manager, residents, levels, program, picture, stand_in, frames };
    scene.measure(heap, size)?;
    scene.check()
}

impl Scene {
    /// Takes a third of the memory away, and has frames run before and after.
    fn measure(&self, heap: HeapId, size: u64) -> Outcome {
        let [all, _] = self.show()?;
        let whole = all.within(50);
        all.print("all resident", whole);
        let limit = self.manager.heap_use(heap)?.reserved - LEVELS as u64 * size / 3;
        self.manager.set_budget(heap, Limits::hard(limit))?;
        self.residents.step()?;
        self.residents.settle()?;
        let [usual, change] = self.show()?;
        usual.print("nothing comes", whole);
        change.print("levels come and go", whole);
        self.residents.settle()?;
        let mut moved = 0;
        for step in 0..10_000 {
            self.manager.set_budget(heap, Limits::hard(limit / 100 * (99 + step % 3)))?;
            self.residents.step()?;
            let step = self.residents.settle()?;
            moved += step.slept + step.woken;
        }
        println!("  the limit flutters by 1 %, 10000 steps: {moved} levels moved");
        Ok(())
    }

    /// Shows view after view: how long frames took that found every level, and those that drew a stand-in.
    fn show(&self) -> Outcome<[Times; 2]> {
        let mut times = [Times::default(), Times::default()];
        for frame in 0..4 * self.frames {
            let first = frame / self.frames * 6;
            let begin = Instant::now();
            let missing = self.frame((first..first + SHOWN).map(|level| level % LEVELS))?;
            times[usize::from(missing > 0)].0.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Draws the levels that are there, and the stand-in for those that are on their way. Returns their number.
    fn frame(&self, shown: impl Iterator<Item = usize>) -> Outcome<usize> {
        self.residents.step()?;
        let (mut missing, mut all_held) = (0, Vec::new());
        for (pool, level) in shown.map(|level| &self.levels[level]) {
            let held = self.residents.hold_if_awake(pool)?;
            missing += usize::from(held.is_none());
            self.draw(if held.is_some() { level } else { &self.stand_in })?;
            all_held.extend(held);
        }
        wait(&self.manager, ON)?;
        Ok(missing)
    }

    fn draw(&self, level: &Allocation<AnyBackend>) -> Outcome {
        let count = u32::try_from(level.size() / 4)?;
        let (groups, words) = ([count.div_ceil(256), 1, 1], [count, 1f32.to_bits(), 0]);
        let both = [level, &self.picture];
        // SAFETY: the level and the picture have `count` numbers each, and both are used on one timeline.
        Ok(unsafe { self.program.launch(ON, groups, &both, &parameters(&words)) }?)
    }

    fn check(&self) -> Outcome {
        for (byte, (pool, level)) in (40..).zip(&self.levels) {
            let (_held, mut end) = (self.residents.hold(pool)?, [0; 4096]);
            self.draw(level)?;
            self.picture.read(self.picture.size() - 4096, &mut end)?;
            if end != [byte; 4096] {
                return Err("a level has other bytes".into());
            }
        }
        println!("  {LEVELS} levels are as they should be");
        Ok(())
    }
}
