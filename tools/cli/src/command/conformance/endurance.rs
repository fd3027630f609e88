//! `omniheap conformance --soak` and `--faults`: the long runs of the suite, on any device that is here.
use omniheap::{AnyBackend, Backend as _, seam::erase};
use omniheap_cli::output::{self, Format};
use omniheap_cli::{Failure, interrupt};
use omniheap_conformance::faults::{Depth, Tally, sweep_until};
use omniheap_conformance::soak::{Soaked, soak_until};
use omniheap_conformance::{Mode, Rig, seed};
use serde::Serialize;
use std::sync::Arc;

/// Both ways in which pools hold memory.
const MODES: [(&str, Mode); 2] = [("blocks", Mode::Plain), ("pages", Mode::Paged)];

/// One call that fails, and then more than one.
const DEPTHS: [(&str, Depth); 2] = [("single", Depth::Single), ("longer", Depth::Plans)];

/// Printed results of a soak.
#[derive(Serialize)]
struct Soak {
    name: &'static str,
    backend: &'static str,
    device: String,
    driver: String,
    pools: &'static str,
    seed: u64,
    threads: u32,
    operations: u64,
    allocated: u64,
    checked: u64,
}

/// Printed results of fault injection.
#[derive(Serialize)]
struct Faults {
    name: &'static str,
    backend: &'static str,
    device: String,
    driver: String,
    pools: &'static str,
    plans: &'static str,
    scenarios: u64,
    injections: u64,
    reported: u64,
    absorbed: u64,
    wrong: Vec<String>,
}

/// Does random work with checked contents, half of it over blocks and half over pages.
pub(super) fn run_soak(
    device: &Arc<AnyBackend>,
    (operations, threads): (u64, u32),
    format: Format,
) -> Result<(), Failure> {
    let about = &device.caps().device;
    let kind = about.backend;
    interrupt::watch();
    for (pools, mode) in MODES {
        let wait = output::spinner(format, &format!("{kind}: {operations} operations, {pools}"));
        let done = soaks(device, mode, operations / 2, threads).map_err(Failure::failed)?;
        wait.finish_and_clear();
        let soak = Soak {
            name: "soak",
            backend: about.backend,
            device: about.name.clone(),
            driver: about.driver.clone(),
            pools,
            seed: seed(),
            threads,
            operations: done.operations,
            allocated: done.allocated,
            checked: done.checked,
        };
        match format {
            Format::Json => output::print_json(&soak)?,
            Format::Text => output::print_line(&format!(
                "{kind} on {} ({}), {pools}: {} operations, {} allocations, {} contents compared, none lost; seed {}",
                soak.device, soak.driver, soak.operations, soak.allocated, soak.checked, soak.seed
            ))?,
        }
        if interrupt::is_wanted() {
            let (done, all) = (soak.operations, operations / 2);
            let why = format!("the results are partial, {done} of {all} operations over {pools}");
            return Err(Failure::interrupted(format!("interrupted: {why}")));
        }
    }
    Ok(())
}

/// Soaks on one device from several threads, each with a manager, timelines and a seed of its own.
fn soaks(
    device: &Arc<AnyBackend>,
    mode: Mode,
    operations: u64,
    threads: u32,
) -> Result<Soaked, String> {
    let count = u64::from(threads);
    let work = |number: u64| {
        let share = operations / count + u64::from(number < operations % count);
        let rig = Rig::new(erase(Arc::clone(device)));
        soak_until(rig, mode, seed().wrapping_add(number), share, &interrupt::is_wanted)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let start = |number| scope.spawn(move || work(number));
        let running: Vec<_> = (0..count).map(start).collect();
        let panicked = |_| Err("a thread panicked; its message is above".to_owned());
        let ended = running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        ended.reduce(|sum, one| Ok(sum? + one?)).unwrap_or_else(|| Ok(Soaked::default()))
    })
}

/// Fails each `every`-th driver call of every scenario.
pub(super) fn run_faults(
    device: &Arc<AnyBackend>,
    every: usize,
    format: Format,
) -> Result<(), Failure> {
    let kind = device.caps().device.backend;
    let (mut wrong, mut done) = (0, 0);
    interrupt::watch();
    for ((pools, mode), (plans, depth)) in
        MODES.into_iter().flat_map(|mode| DEPTHS.map(|depth| (mode, depth)))
    {
        let wait = output::spinner(format, &format!("{kind}: failing calls, {plans}, {pools}"));
        // One device for all: each injection has layers of its own, and what they lose is theirs.
        let again = || Ok::<_, Failure>(Rig::new(erase(Arc::clone(device))));
        let tally =
            output::quietly(|| sweep_until(again, mode, depth, every, &interrupt::is_wanted))?;
        wait.finish_and_clear();
        wrong += tally.wrong.len();
        print(device, (pools, plans), tally, format)?;
        interrupt::check(done, MODES.len() * DEPTHS.len(), "sweeps are whole")?;
        done += 1;
    }
    if wrong == 0 {
        Ok(())
    } else {
        Err(Failure::failed(format!("{kind}: {wrong} faults went wrong")))
    }
}

fn print(
    device: &AnyBackend,
    (pools, plans): (&'static str, &'static str),
    tally: Tally,
    format: Format,
) -> Result<(), Failure> {
    let about = device.caps().device.clone();
    if format == Format::Text {
        output::print_line(&format!(
            "{} on {}, failing calls, {plans}, {pools}: {tally}",
            about.backend, about.name
        ))?;
        return tally.wrong.iter().try_for_each(|line| output::print_line(&format!("  {line}")));
    }
    output::print_json(&Faults {
        name: "faults",
        backend: about.backend,
        device: about.name,
        driver: about.driver,
        pools,
        plans,
        scenarios: tally.scenarios,
        injections: tally.injections,
        reported: tally.reported,
        absorbed: tally.absorbed,
        wrong: tally.wrong,
    })
}
