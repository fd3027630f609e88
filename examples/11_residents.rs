//! A scene of 1.5 times the memory that it may have: what is in view stays on the device, the rest waits in host memory.
//!
//! `cargo run --release --example 11_residents -- --backend auto|cuda|hip|vulkan|wgpu|host [--mib 512 --frames 120]`
#![expect(unsafe_code, reason = "launches kernels")]
use omniheap::placement::Keyword as _;
use omniheap::residency::{HostStore, Resident, Residents};
use omniheap::shaders::SCALE;
use omniheap::transfer::Program;
use omniheap::{
    Allocation, AnyBackend, Limits, Manager, PoolConfig, Request, TimelineId, UserPool,
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
    frames: usize,
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
    let scene = Scene { manager, residents, levels, program, picture, frames };
    let [whole, _] = scene.show()?;
    let limit = scene.manager.heap_use(heap)?.reserved - LEVELS as u64 * size / 3;
    scene.manager.set_budget(heap, Limits::hard(limit))?;
    scene.residents.step()?;
    let [now, change] = scene.show()?;
    println!("  a frame: {now:.3} ms, {:.2} of all resident", now / whole);
    println!("  one that brings a level: {change:.3} ms, {:.2} of all resident", change / whole);
    let mut moved = 0;
    for step in 0..10_000 {
        scene.manager.set_budget(heap, Limits::hard(limit / 100 * (99 + step % 3)))?;
        let step = scene.residents.step()?;
        moved += step.slept + step.woken;
    }
    println!("  the limit flutters by 1 %, 10000 steps: {moved} levels moved");
    scene.check()
}

impl Scene {
    /// Shows view after view: the median milliseconds of frames that find every level, and of frames that bring one.
    fn show(&self) -> Outcome<[f64; 2]> {
        let mut times = [Vec::new(), Vec::new()];
        for frame in 0..4 * self.frames {
            let first = frame / self.frames * 6;
            let begin = Instant::now();
            let brought = self.frame((first..first + SHOWN).map(|level| level % LEVELS))?;
            times[brought].push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        }))
    }

    /// Draws the levels that are there, and brings one that is not: no frame waits for more. Returns how many it brought.
    fn frame(&self, shown: impl Iterator<Item = usize>) -> Outcome<usize> {
        let (mut brought, mut held) = (0, Vec::new());
        for (pool, level) in shown.map(|level| &self.levels[level]) {
            let is_away = pool.residence().asleep;
            if !is_away || brought == 0 {
                held.push(self.residents.hold(pool)?);
                self.draw(level)?;
                brought += usize::from(is_away);
            }
        }
        wait(&self.manager, ON)?;
        Ok(brought)
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
