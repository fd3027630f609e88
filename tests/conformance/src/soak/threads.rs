//! The same with several threads on one manager.
use super::STAMPED;
use crate::rig::Rig;
use crate::rng::{Rng, stamp};
use crate::world::{Mode, Stack, World};
use omniheap_core::{Allocation, Backend, Manager, Request};

/// Runs random operations on several threads that share a manager: every thread checks its own contents.
///
/// # Errors
///
/// The finding of a thread, with the seed.
pub fn soak_threads<B: Backend + 'static>(
    rig: Rig<B>,
    mode: Mode,
    seed: u64,
    threads: u64,
    operations: u64,
) -> Result<u64, String> {
    let guards = rig.extras.guards;
    let world = World::new(rig, mode, seed).with_guards(guards);
    let mut config = world.config();
    config.pool.lanes = Some(4);
    let manager = world.manager_with(&world.stack(), config);
    let ran: Result<Vec<u64>, String> = std::thread::scope(|scope| {
        let (world, manager) = (&world, &manager);
        let start = |n: u64| {
            scope.spawn(move || one_thread(world, manager, seed ^ (n << 48), operations / threads))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running.into_iter().map(|thread| thread.join().map_err(crate::run::sentence)?).collect()
    });
    let checked = ran.map_err(|why| format!("seed {seed}: {why}"))?.iter().sum();
    drop(manager);
    world.gate().map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(checked)
}

fn one_thread<B: Backend + 'static>(
    world: &World<B>,
    manager: &Manager<Stack<B>>,
    seed: u64,
    operations: u64,
) -> Result<u64, String> {
    let (mut rng, mut live, mut checked) = (Rng::new(seed), Vec::new(), 0);
    let length = usize::try_from(world.whole(STAMPED)).expect("small");
    for number in 0..operations {
        match rng.below(16) {
            0..8 if live.len() < 100 => {
                let size = world.whole(rng.size(100_000).max(STAMPED));
                let one =
                    manager.allocate(&Request::new(size)).map_err(|error| error.to_string())?;
                let mut bytes = vec![0; length];
                stamp(seed ^ number, 0, &mut bytes);
                one.write(0, &bytes).map_err(|error| error.to_string())?;
                live.push((one, seed ^ number));
            }
            0..15 if !live.is_empty() => {
                let (one, id): (Allocation<_>, u64) = live.swap_remove(rng.index(live.len()));
                let (mut found, mut wanted) = (vec![0; length], vec![0; length]);
                stamp(id, 0, &mut wanted);
                one.read(0, &mut found).map_err(|error| error.to_string())?;
                if found != wanted {
                    return Err(format!("operation {number}: {:?} lost its bytes", one.id()));
                }
                checked += 1;
            }
            _ if number % 64 == 0 => {
                manager.trim().map(|_| ()).map_err(|error| error.to_string())?;
            }
            _ => manager.validate()?,
        }
    }
    Ok(checked)
}
