//! A scene of 1.5 times the memory that it may have: what is out of view waits in host memory, and frames draw a stand-in until it is back.
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
use omniheap_examples::{Outcome, Times, option, paged_heap, parameters, wait};
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
    stand_in: Allocation<AnyBackend>,
}

fn main() -> Outcome {
    let manager = omniheap_examples::manager()?;
    let number = |name, usual| option(name).map_or(Ok(usual), |text| text.parse::<u16>());
    let (size, frames) = (u64::from(number("mib", 4)?) << 20, number("frames", 8)?.into());
    let picture = manager.allocate(&Request::new(size).on(ON))?;
    let placed = picture.placed();
    println!("  picture: {} memory, because {}", placed.region.word(), placed.reason);
    let (heap, program) = (paged_heap(&manager, size)?, manager.load(&SCALE, 0)?);
    let (residents, mut levels) = (Residents::of(&manager), Vec::new());
    for byte in (40..).take(LEVELS) {
        let config = PoolConfig::new().sleepable().maximum(2 * size);
        let pool = Arc::new(manager.create_pool(heap, config)?);
        residents.add(&pool, Resident::to(HostStore::new()))?;
        let level = pool.allocate(&Request::new(size).on(ON))?;
        level.fill(0, size, byte)?;
        levels.push((pool, level));
    }
    let stand_in = manager.allocate(&Request::new(size).on(ON).zeroed())?;
    // A third is away, and one level more while it changes places with another.
    Arena::of_process().prepare_pinned(manager.backend(), (LEVELS as u64 / 3 + 2) * size)?;
    let scene = Scene { manager, residents, levels, program, picture, stand_in };
    scene.measure(heap, size, frames)?;
    scene.check()
}

impl Scene {
    /// Takes a third of the memory away, and has frames run before and after.
    fn measure(&self, heap: HeapId, size: u64, frames: usize) -> Outcome {
        let ([all, _], mut moved) = (self.show(frames)?, 0);
        let whole = all.within(50);
        all.print("all resident", whole);
        let limit = self.manager.heap_use(heap)?.reserved - LEVELS as u64 * size / 3;
        self.manager.set_budget(heap, Limits::hard(limit))?;
        self.residents.step()?;
        self.residents.settle()?;
        let times = self.show(frames)?;
        times[0].print("nothing comes", whole);
        times[1].print("levels come and go", whole);
        self.residents.settle()?;
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
    fn show(&self, frames: usize) -> Outcome<[Times; 2]> {
        let mut times = [Times::default(), Times::default()];
        for frame in 0..4 * frames {
            let (first, begin) = (frame / frames * 6, Instant::now());
            let missing = self.frame((first..first + SHOWN).map(|level| level % LEVELS))?;
            times[usize::from(missing > 0)].0.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Draws the levels that are there, and the stand-in for those that are on their way. Returns their number.
    fn frame(&self, shown: impl Iterator<Item = usize>) -> Outcome<usize> {
        self.residents.step()?;
        let mut all = Vec::new();
        for (pool, level) in shown.map(|level| &self.levels[level]) {
            let held = self.residents.hold_if_awake(pool)?;
            // As large as the level, so that every frame draws as much.
            self.draw(if held.is_some() { level } else { &self.stand_in })?;
            all.push(held);
        }
        wait(&self.manager, ON)?;
        Ok(all.iter().filter(|held| held.is_none()).count())
    }

    fn draw(&self, level: &Allocation<AnyBackend>) -> Outcome {
        let (count, both) = (u32::try_from(level.size() / 4)?, [level, &self.picture]);
        let (groups, words) = ([count.div_ceil(256), 1, 1], [count, 1f32.to_bits(), 0]);
        // SAFETY: the level and the picture have `count` numbers each, and both are used on one timeline.
        Ok(unsafe { self.program.launch(ON, groups, &both, &parameters(&words)) }?)
    }

    fn check(&self) -> Outcome {
        for (byte, (pool, level)) in (40..).zip(&self.levels) {
            let (_held, mut end) = (self.residents.hold(pool)?, [0; 4096]);
            self.draw(level)?;
            self.picture.read(self.picture.size() - 4096, &mut end)?;
            (end == [byte; 4096]).then_some(()).ok_or("a level has other bytes")?;
        }
        println!("  {LEVELS} levels are as they should be");
        Ok(())
    }
}
