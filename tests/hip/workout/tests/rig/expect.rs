//! Expected answers of each runtime.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use omniheap_hip_runtime::Suite;

use crate::rig::{Ended, Rig, Under};

type Check = fn(&Rig) -> Result<(), Failed>;

/// Lists the tests of one runtime.
pub(crate) fn trials(rig: &Rig) -> Vec<Trial> {
    let checks: [(&str, Check); 19] = [
        ("answers_are_as_recorded", answers_are_as_recorded),
        ("without_a_device_it_says_so", without_a_device_it_says_so),
        ("kernels_compile_for_every_architecture", kernels_compile_for_every_architecture),
        ("two_devices_copy_to_each_other", two_devices_copy_to_each_other),
        ("knobs_reach_the_runtime", knobs_reach_the_runtime),
        ("wrong_knobs_are_refused", wrong_knobs_are_refused),
        ("a_failed_allocation_is_out_of_memory", a_failed_allocation_is_out_of_memory),
        ("a_failed_map_shows_at_access", a_failed_map_shows_at_access),
        ("a_failed_start_is_no_device", a_failed_start_is_no_device),
        ("bug_threshold_is_ignored", bug_threshold_is_ignored),
        ("bug_interior_free_frees_all", bug_interior_free_frees_all),
        ("bug_growth_runs_out", bug_growth_runs_out),
        ("bug_access_fails_for_some_sizes", bug_access_fails_for_some_sizes),
        ("bug_access_fails_on_a_grown_tail", bug_access_fails_on_a_grown_tail),
        ("bug_one_unmap_over_many_maps", bug_one_unmap_over_many_maps),
        ("bug_unmap_of_a_stranger", bug_unmap_of_a_stranger),
        ("bug_address_free_of_a_stranger", bug_address_free_of_a_stranger),
        ("bug_wrong_maps_succeed", bug_wrong_maps_succeed),
        ("bug_retain_takes_no_reference", bug_retain_takes_no_reference),
    ];
    let trial = |(name, check): (&str, Check)| {
        let rig = rig.clone();
        Trial::test(format!("{}::{name}", rig.suite()), move || check(&rig))
    };
    checks.into_iter().map(trial).collect()
}

impl Ended {
    /// Fails unless the run ended well and its output holds each of `lines`, in this order.
    fn holds(&self, lines: &[&str]) -> Result<(), Failed> {
        self.succeeded().and_then(|()| self.says(lines))
    }

    /// Fails unless the output holds each of `lines`, in this order, however the run ended.
    fn says(&self, lines: &[&str]) -> Result<(), Failed> {
        let mut rest = self.text.as_str();
        for line in lines {
            let Some(at) = rest.find(line) else {
                return Err(self.tell(&format!("`{line}` is not (there) in")));
            };
            rest = &rest[at + line.len()..];
        }
        Ok(())
    }

    fn succeeded(&self) -> Result<(), Failed> {
        if self.code == Some(0) { Ok(()) } else { Err(self.tell("the run failed")) }
    }

    fn tell(&self, what: &str) -> Failed {
        let Self { text, errors, code, signal } = self;
        format!("{what}:\n{text}\n{errors}\nexit code {code:?}, signal {signal:?}").into()
    }
}

/// Chooses by runtime: what 6 does, what 7 does.
fn by_suite<T>(rig: &Rig, sid: T, experimental: T) -> T {
    match rig.suite() {
        Suite::Sid => sid,
        Suite::Experimental => experimental,
    }
}

fn answers_are_as_recorded(rig: &Rig) -> Result<(), Failed> {
    let ended = rig.run(Under::StandIn, None, &[]);
    ended.succeeded()?;
    let name = format!("expected/hip-{}.txt", rig.major());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    if std::env::var_os("OMNIHEAP_RECORD").is_some() {
        fs::write(&path, &ended.text)?;
    }
    let expected = fs::read_to_string(&path)?;
    let differs = |(_, (got, expected)): &(usize, (&str, &str))| got != expected;
    let pairs = ended.text.lines().chain(["<end>"]).zip(expected.lines().chain(["<end>"]));
    match pairs.enumerate().find(differs) {
        None => Ok(()),
        Some((index, (got, expected))) => {
            Err(format!("{name}:{}\n  recorded: {expected}\n  answered: {got}", index + 1).into())
        }
    }
}

/// Both over AMD's own library, which finds nothing, and over a stand-in without devices.
fn without_a_device_it_says_so(rig: &Rig) -> Result<(), Failed> {
    let lines = ["says that there is no device: ok", "counts none: ok", "-> 100 hipErrorNoDevice"];
    if !Path::new("/dev/kfd").exists() {
        rig.run(Under::Amd, Some("absent"), &[]).holds(&lines)?;
    }
    rig.run(Under::StandIn, Some("absent"), &[("OMNIHEAP_HSA_DEVICES", "0")]).holds(&lines)
}

fn kernels_compile_for_every_architecture(rig: &Rig) -> Result<(), Failed> {
    let lines = ["gfx906: ok", "gfx90a: ok", "gfx942: ok", "gfx1030: ok", "gfx1100: ok"];
    rig.run(Under::Amd, Some("compile"), &[]).holds(&lines)
}

fn two_devices_copy_to_each_other(rig: &Rig) -> Result<(), Failed> {
    let two = [("OMNIHEAP_HSA_DEVICES", "2")];
    let lines = [
        "access is possible: 1",
        "-> 704 hipErrorPeerAccessAlreadyEnabled",
        "device to device: ok",
    ];
    rig.run(Under::StandIn, Some("peers"), &two).holds(&lines)?;
    rig.run(Under::StandIn, Some("driver-two"), &two)
        .holds(&["the thread's device is as before: ok"])
}

fn knobs_reach_the_runtime(rig: &Rig) -> Result<(), Failed> {
    let run = |case, name, value| rig.run(Under::StandIn, Some(case), &[(name, value)]);
    run("devices", "OMNIHEAP_HSA_ARCH", "gfx1100")
        .holds(&["threads in step: 32", "architecture: gfx1100"])?;
    if rig.suite() == Suite::Experimental {
        // HIP 6.4 does not know this architecture.
        run("devices", "OMNIHEAP_HSA_ARCH", "gfx950:sramecc+:xnack-")
            .holds(&["shared bytes of a group: 163840"])?;
    }
    run("plain", "OMNIHEAP_HSA_VRAM", "2147483648").holds(&["bytes in all: 2147483648"])?;
    run("devices", "OMNIHEAP_HSA_VMM", "0").holds(&["virtual memory: 0"])?;
    run("devices", "OMNIHEAP_HSA_LARGE_BAR", "0").holds(&["large BAR: 0"])?;
    run("virtual", "OMNIHEAP_HSA_GRANULE", "2097152")
        .holds(&["granularity: 2097152", "nothing is lost: ok"])?;
    run("kernels", "OMNIHEAP_HSA_ARCH", "gfx1030").holds(&["moves arrive: ok"])
}

fn wrong_knobs_are_refused(rig: &Rig) -> Result<(), Failed> {
    for (name, value) in [("OMNIHEAP_HSA_VRAM", "many"), ("OMNIHEAP_HSA_FAIL", "hsa_init")] {
        let ended = rig.run(Under::StandIn, Some("absent"), &[(name, value)]);
        ended.holds(&["says that there is no device: ok"])?;
        if !ended.errors.contains(&format!("{name}={value}: give ")) {
            return Err(ended.tell("the mistake is not named"));
        }
    }
    Ok(())
}

/// Whichever allocation fails below it, HIP answers an error and survives; when it is the caller's, it says so and the next
/// one succeeds.
fn a_failed_allocation_is_out_of_memory(rig: &Rig) -> Result<(), Failed> {
    let mut seen = false;
    for number in 1..=6 {
        let fail = format!("hsa_amd_memory_pool_allocate:{number}");
        let ended = rig.run(Under::StandIn, Some("allocate-once"), &[("OMNIHEAP_HSA_FAIL", &fail)]);
        ended.succeeded()?;
        let lines = [
            "-> 2 hipErrorOutOfMemory",
            "pointer is null: true",
            "-> 0 hipSuccess",
            "-> 0 hipSuccess",
        ];
        seen |= ended.says(&lines).is_ok();
    }
    if seen { Ok(()) } else { Err("no allocation of the caller's was made to fail".into()) }
}

/// `hipMemMap` answers success even then; access is the first call that can be trusted.
fn a_failed_map_shows_at_access(rig: &Rig) -> Result<(), Failed> {
    let ended =
        rig.run(Under::StandIn, Some("map-once"), &[("OMNIHEAP_HSA_FAIL", "hsa_amd_vmem_map:1")]);
    ended.holds(&[
        "hipMemMap",
        "-> 0 hipSuccess",
        "hipMemSetAccess",
        "-> 1 hipErrorInvalidValue",
    ])?;
    let ended = rig.run(
        Under::StandIn,
        Some("map-once"),
        &[("OMNIHEAP_HSA_FAIL", "hsa_amd_vmem_handle_create:1")],
    );
    ended.holds(&["hipMemCreate", "-> 2 hipErrorOutOfMemory"])
}

fn a_failed_start_is_no_device(rig: &Rig) -> Result<(), Failed> {
    let ended = rig.run(Under::StandIn, Some("absent"), &[("OMNIHEAP_HSA_FAIL", "hsa_init:1+")]);
    ended.holds(&["says that there is no device: ok"])
}

fn bug(rig: &Rig, case: &str) -> Ended {
    rig.run(Under::StandIn, Some(case), &[])
}

fn bug_threshold_is_ignored(rig: &Rig) -> Result<(), Failed> {
    let before = by_suite(rig, "MiB held before: 192", "MiB held before: 256");
    let after = by_suite(rig, "MiB held after: 64", "MiB held after: 96");
    bug(rig, "threshold").holds(&[before, after, "threshold honoured: false"])
}

fn bug_interior_free_frees_all(rig: &Rig) -> Result<(), Failed> {
    bug(rig, "interior-free").holds(&[
        "add(4096))",
        "-> 0 hipSuccess",
        "hipFree(block)",
        "-> 1 hipErrorInvalidValue",
    ])
}

fn bug_growth_runs_out(rig: &Rig) -> Result<(), Failed> {
    // HIP 7.2 frees something twice when the process ends after this, so how it ends does not count.
    bug(rig, "growth").says(&["either holds out or says out of memory: ok"])
}

/// Returns true if a fault shows in one of several runs: that depends on where the system puts addresses and on timing.
/// `always` must hold in each run, shown or not, however the run ends.
fn shows(rig: &Rig, case: &str, line: &str, always: &[&str]) -> Result<bool, Failed> {
    let mut seen = 0;
    for _ in 0..8 {
        let ended = bug(rig, case);
        ended.says(always)?;
        seen += usize::from(ended.says(&[line]).is_ok());
    }
    println!("{}: {case} showed in {seen} of 8 runs", rig.suite());
    Ok(seen > 0)
}

/// Fails when HIP 6 shows a fault that came with HIP 7. That HIP 7 shows it is likely and not certain.
fn only_in_7(rig: &Rig, shown: bool) -> Result<(), Failed> {
    if rig.suite() == Suite::Sid && shown {
        Err("HIP 6 did not have this fault".into())
    } else {
        Ok(())
    }
}

fn bug_access_fails_for_some_sizes(rig: &Rig) -> Result<(), Failed> {
    only_in_7(rig, shows(rig, "access-sizes", "mapped range: true", &[])?)
}

fn bug_access_fails_on_a_grown_tail(rig: &Rig) -> Result<(), Failed> {
    let always = ["asking for the whole range works: ok"];
    only_in_7(rig, shows(rig, "access-tail", "grown tail: true", &always)?)
}

fn bug_one_unmap_over_many_maps(rig: &Rig) -> Result<(), Failed> {
    let freed = by_suite(rig, "-> 999 hipErrorUnknown", "-> 0 hipSuccess");
    bug(rig, "unmap-many").holds(&["hipMemUnmap", "-> 0 hipSuccess", "hipMemAddressFree", freed])
}

/// `SIGSEGV`
const SEGMENTATION: Option<i32> = Some(11);

fn bug_unmap_of_a_stranger(rig: &Rig) -> Result<(), Failed> {
    let ended = bug(rig, "unmap-unknown");
    match rig.suite() {
        Suite::Sid if ended.signal == SEGMENTATION => Ok(()),
        Suite::Sid => Err(ended.tell("it survived, and used not to")),
        Suite::Experimental => ended.holds(&["-> 1 hipErrorInvalidValue"]),
    }
}

fn bug_address_free_of_a_stranger(rig: &Rig) -> Result<(), Failed> {
    let ended = bug(rig, "free-unknown");
    if ended.signal == SEGMENTATION {
        Ok(())
    } else {
        Err(ended.tell("it survived, and used not to"))
    }
}

fn bug_wrong_maps_succeed(rig: &Rig) -> Result<(), Failed> {
    let ended = bug(rig, "map-wrong");
    ended.holds(&[
        "-> 1 hipErrorInvalidValue",
        "hipMemSetAccess",
        "-> 0 ",
        "hipMemMap",
        "-> 0 ",
        "add(100 * MIB)",
        "-> 0 ",
    ])
}

fn bug_retain_takes_no_reference(rig: &Rig) -> Result<(), Failed> {
    bug(rig, "retain").holds(&["the same page: true", "bytes freed by the first release: 2097152"])
}
