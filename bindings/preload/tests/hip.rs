//! The library under HIP programs. HIP's functions are those of `tests/hip/forward`, which asks the CUDA driver for everything, and that
//! is the stand-in: so the library stands before both, and each call of the program must be answered once.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod rig;

use rig::{Rig, complained, count, order, said};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Doors to the runtime: the first argument of a program.
const DOORS: [&str; 3] = ["linked", "opened", "proc"];
/// What every call answers, with the library and without it.
const ANSWERS: &str = include_str!("programs/hip.txt");

/// Returns a program that stands before a door.
fn program(door: &str) -> &'static PathBuf {
    static PROGRAMS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let (place, options): (_, &[&str]) = match door {
        "linked" => (&PROGRAMS[0], &["-DLINKED", "-l:libamdhip64.so", "-lpthread"]),
        _ => (&PROGRAMS[1], &["-ldl", "-lpthread"]),
    };
    place.get_or_init(|| Rig::get().compile("hip.c", options))
}

/// Returns a case by a door, with the library.
fn case(door: &str, case: &str) -> Command {
    let mut command = Rig::get().with(program(door));
    command.args([door, case]);
    command
}

#[test]
fn every_door_of_hip_gives_the_runtimes_answers_and_our_memory() {
    let rig = Rig::get();
    for door in DOORS {
        let plain = rig.without(program(door)).args([door, "answers"]).output().expect("it starts");
        assert_eq!(said(&plain), ANSWERS, "{door}: {}", complained(&plain));
        let counts = rig.folder.join(format!("hip-{door}"));
        let ours = case(door, "answers").env("STANDIN_COUNTS", &counts).output();
        let ours = ours.expect("it starts");
        assert_eq!(said(&ours), ANSWERS, "{door}: {}", complained(&ours));
        assert!(count(&counts, "cuMemAlloc_v2 ") < 12, "{door}: memory is ours");
        assert!(count(&counts, "cuMemAllocAsync ") < 4, "{door}: memory is ours");
    }
}

#[test]
fn threads_and_streams_of_hip_see_their_own_bytes_alone() {
    for (variable, value) in
        [("A", "plain"), ("STANDIN_DEVICES", "2"), ("OMNIHEAP_IPC", "1"), ("OMNIHEAP_SLEEP", "1")]
    {
        let mut command = case("opened", "churn");
        command.env("STANDIN_DELAY", "200").env(variable, value);
        let done = command.output().expect("it starts");
        assert_eq!(said(&done), "bad 0\n", "{variable}: {}", complained(&done));
    }
}

#[test]
fn pairs_of_hip_take_few_calls_and_little_memory() {
    let counts = Rig::get().folder.join("hip-pairs");
    let mut command = case("linked", "pairs");
    command.env("STANDIN_COUNTS", &counts).env("STANDIN_MEMORY", (64_u64 << 30).to_string());
    assert_eq!(said(&command.output().expect("it starts")), "bad 0\n");
    assert!(count(&counts, "bytes.peak ") <= 128 << 20, "of a device of 64 GiB");
    assert!(count(&counts, "cuCtxSynchronize ") <= 64, "of a thousand frees");
}

#[test]
fn streams_of_hip_that_come_and_go_take_the_memory_of_those_before() {
    let counts = Rig::get().folder.join("hip-streams");
    let mut command = case("linked", "streams");
    command.env("STANDIN_COUNTS", &counts).env("STANDIN_MEMORY", (64_u64 << 30).to_string());
    assert_eq!(said(&command.output().expect("it starts")), "bad 0\n");
    assert!(count(&counts, "bytes.peak ") <= 64 << 20, "of two hundred streams");
}

#[test]
fn a_limit_is_what_a_hip_program_gets_and_the_runtime_says() {
    let mut command = case("proc", "fill");
    command.env("OMNIHEAP_LIMIT", "64MiB").env("OMNIHEAP_SUMMARY", "1");
    let done = command.output().expect("it starts");
    assert_eq!(said(&done), "64 blocks, then 2, and the last error is 2\n");
    assert!(complained(&done).contains("device 0: 64 MiB live now"), "{}", complained(&done));
    assert_eq!(complained(&done).lines().count(), 1, "{}", complained(&done));
}

#[test]
fn guards_find_what_a_hip_program_writes_behind_an_allocation() {
    let done = case("linked", "overrun").env("OMNIHEAP_GUARDS", "1").output().expect("it starts");
    assert!(complained(&done).contains("written behind an allocation"), "{}", complained(&done));
}

#[test]
fn a_hip_program_that_sleeps_waits_and_finds_its_bytes_again() {
    for door in DOORS {
        let socket = Rig::get().folder.join(format!("hip-{door}.sock"));
        let mut command = case(door, "loop");
        command.env("OMNIHEAP_CONTROL", &socket).env("OMNIHEAP_SLEEP", "1");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("ready"));
        for _ in 0..3 {
            let slept = order(&socket, "sleep");
            assert!(slept.starts_with("ok: ") && slept != "ok: 0 bytes", "{slept}");
            assert!(order(&socket, "report").contains(" 0 MiB,"), "{}", order(&socket, "report"));
            assert!(order(&socket, "wake").starts_with("ok: "));
        }
        drop(child.stdin.take());
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("bad 0"), "{door}");
        assert!(child.wait().expect("it ends").success());
    }
}
