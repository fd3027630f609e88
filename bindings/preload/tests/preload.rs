//! The library under programs, over the stand-in of the driver.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod rig;

use omniheap_trace::Trace;
use rig::{Rig, complained, count, order, said};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

const LINKED: &[&str] = &["-l:libcuda.so.1", "-lpthread", "-ldl"];

#[test]
fn every_door_gives_the_drivers_answers_and_our_memory() {
    let rig = Rig::get();
    let program = rig.compile("doors.c", &["-ldl"]);
    for words in [&["libcuda.so.1"][..], &["libcuda.so.1", "deep"]] {
        let counts = rig.folder.join(format!("doors-{}", words.len()));
        let plain = rig.without(&program).args(words).output().expect("it starts");
        let ours = rig.with(&program).args(words).env("STANDIN_COUNTS", &counts).output();
        let ours = ours.expect("it starts");
        assert_eq!((said(&plain), plain.status), (said(&ours), ours.status), "{words:?}");
        assert!(said(&ours).contains("twice 1\ninside 1\nforeign 1\n"), "{}", said(&ours));
        assert_eq!(count(&counts, "cuMemAllocAsync "), 0, "memory is ours");
    }
}

#[test]
fn a_library_that_finds_the_driver_itself_gets_ours_unless_it_is_bound_deep() {
    let rig = Rig::get();
    let plugin = rig.compile("finds.c", &["-shared", "-fPIC", "-DPLUGIN", "-ldl"]);
    let program = rig.compile("finds.c", &["-ldl"]);
    let counts = rig.folder.join("finds");
    for name in ["libcuda.so.1", "libcuda.so"] {
        for (deep, asked) in [(None, 0), (Some("deep"), 3)] {
            let mut command = rig.with(&program);
            command.arg(&plugin).arg(name).args(deep).env("STANDIN_COUNTS", &counts);
            assert_eq!(said(&command.output().expect("it starts")), "3 pairs\n", "{name}");
            assert_eq!(count(&counts, "cuMemAlloc_v2 "), asked, "{name} {deep:?}");
        }
    }
}

#[test]
fn threads_and_streams_see_their_own_bytes_alone() {
    let rig = Rig::get();
    let program = rig.compile("churn.c", LINKED);
    for (variable, value) in
        [("A", "plain"), ("STANDIN_DEVICES", "2"), ("OMNIHEAP_IPC", "1"), ("OMNIHEAP_SLEEP", "1")]
    {
        let counts = rig.folder.join(format!("churn-{variable}"));
        let mut command = rig.with(&program);
        command.env("STANDIN_COUNTS", &counts).env("STANDIN_DELAY", "200").env(variable, value);
        let done = command.output().expect("it starts");
        assert_eq!(said(&done), "bad 0\n", "{variable}: {}", complained(&done));
        assert_eq!(count(&counts, "rules.broken"), 0, "{variable}");
    }
}

#[test]
fn a_program_without_a_driver_or_without_cuda_runs_as_ever() {
    let rig = Rig::get();
    let program = rig.compile("doors.c", &["-ldl"]);
    let done = rig.with(&program).env_remove("LD_LIBRARY_PATH").output().expect("it starts");
    assert!(
        said(&done).starts_with("no driver") || said(&done).starts_with("init"),
        "{}",
        said(&done)
    );
    let done = rig.with(Path::new("/bin/echo")).arg("hello").env("OMNIHEAP_SUMMARY", "1").output();
    let done = done.expect("it starts");
    assert_eq!((said(&done), complained(&done)), ("hello\n".into(), String::new()));
}

#[test]
fn a_limit_is_what_the_program_sees_and_gets() {
    let rig = Rig::get();
    let program = rig.compile("fill.c", LINKED);
    let done = rig.with(&program).env("OMNIHEAP_LIMIT", "64MiB").output().expect("it starts");
    assert_eq!(said(&done), "64 blocks, then 2 at 0; 0 MiB of 64 free\n");
}

#[test]
fn a_trace_a_report_and_a_line_tell_what_was_used() {
    let rig = Rig::get();
    let program = rig.compile("fill.c", LINKED);
    let (trace, report) = (rig.folder.join("fill.omt"), rig.folder.join("fill.html"));
    let mut command = rig.with(&program);
    command.env("OMNIHEAP_LIMIT", "16M").env("OMNIHEAP_TRACE", &trace);
    command.env("OMNIHEAP_REPORT", &report).env("OMNIHEAP_SUMMARY", "1");
    let done = command.output().expect("it starts");
    assert!(complained(&done).contains("16 allocations took"), "{}", complained(&done));
    let trace = Trace::open(&trace).expect("a whole trace");
    assert_eq!(trace.summary().peak_live_bytes, 16 << 20);
    assert!(fs::read_to_string(report).expect("a page").starts_with("<!doctype html>"));
}

#[test]
fn guards_find_what_is_written_behind_an_allocation() {
    let rig = Rig::get();
    let program = rig.compile("overrun.c", LINKED);
    let plain = rig.with(&program).output().expect("it starts");
    assert!(plain.status.success() && complained(&plain).is_empty(), "{}", complained(&plain));
    let guarded = rig.with(&program).env("OMNIHEAP_GUARDS", "1").output().expect("it starts");
    assert!(
        complained(&guarded).contains("written behind an allocation"),
        "{}",
        complained(&guarded)
    );
}

#[test]
fn a_program_that_sleeps_waits_and_finds_its_bytes_again() {
    let rig = Rig::get();
    let program = rig.compile("loop.c", LINKED);
    let socket = rig.folder.join("loop.sock");
    let mut command = rig.with(&program);
    command
        .env("OMNIHEAP_CONTROL", &socket)
        .env("OMNIHEAP_SLEEP", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("ready"));
    let mode = fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for words in ["", "sleep now", "limit much", "limit", "rm -rf /", &"x".repeat(1000)] {
        assert!(order(&socket, words).starts_with("error: "), "{words:?}");
    }
    assert!(order(&socket, "report").starts_with("ok: device 0: "));
    assert_eq!(order(&socket, "limit 1GiB"), "ok: 1073741824 bytes");
    for _ in 0..3 {
        let slept = order(&socket, "sleep");
        assert!(slept.starts_with("ok: ") && slept != "ok: 0 bytes", "{slept}");
        assert_eq!(order(&socket, "sleep"), "ok: 0 bytes", "it sleeps already");
        assert!(order(&socket, "report").contains(" 0 MiB,"), "{}", order(&socket, "report"));
        assert!(order(&socket, "wake").starts_with("ok: "));
    }
    drop(child.stdin.take());
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("bad 0"));
    assert!(child.wait().expect("it ends").success());
    assert!(!socket.exists(), "the socket goes with the program");
}

#[test]
fn programs_that_leak_end_well() {
    let rig = Rig::get();
    let program = rig.compile("overrun.c", LINKED);
    for _ in 0..20 {
        assert!(rig.with(&program).status().expect("it starts").success());
    }
}

#[test]
fn a_program_that_cannot_sleep_goes_on() {
    let rig = Rig::get();
    let program = rig.compile("loop.c", LINKED);
    for (variable, value) in [("A", "awake"), ("STANDIN_DEVICES", "2"), ("OMNIHEAP_IPC", "1")] {
        let socket = rig.folder.join(format!("awake-{variable}.sock"));
        let mut command = rig.with(&program);
        command.env("OMNIHEAP_CONTROL", &socket).env(variable, value);
        command.env("OMNIHEAP_SLEEP", if variable == "A" { "0" } else { "1" });
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("ready"));
        assert!(order(&socket, "sleep").contains("cannot sleep"), "{variable}");
        drop(child.stdin.take());
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("bad 0"));
        assert!(child.wait().expect("it ends").success());
    }
}

#[test]
fn an_allocation_waits_for_no_work_that_came_after_the_frees() {
    let rig = Rig::get();
    let program = rig.compile("odd.c", LINKED);
    let done = rig.with(&program).arg("waits").output().expect("it starts");
    assert_eq!(said(&done), "done\n", "{}", done.status);
}

#[test]
fn pairs_of_requests_and_frees_take_few_calls_and_little_memory() {
    let rig = Rig::get();
    let program = rig.compile("odd.c", LINKED);
    // The backend asks once more for each block of its own that it takes or frees.
    for (exports, most) in [("0", 2500), ("1", 4500)] {
        let counts = rig.folder.join(format!("pairs-{exports}"));
        let mut command = rig.with(&program);
        command.arg("pairs").env("STANDIN_COUNTS", &counts).env("OMNIHEAP_IPC", exports);
        let done = command.env("STANDIN_MEMORY", (64_u64 << 30).to_string()).output();
        assert_eq!(said(&done.expect("it starts")), "done\n");
        assert!(count(&counts, "bytes.peak ") <= 48 << 20, "of a device of 64 GiB");
        assert!(count(&counts, "cuMemCreate ") <= 32, "of a thousand requests");
        assert!(count(&counts, "cuCtxRecordEvent ") <= 32, "of a thousand frees");
        let asked = ["cuCtxGetCurrent ", "cuStreamGetId "].map(|name| count(&counts, name));
        assert!(asked.iter().sum::<u64>() <= most, "one for each of two thousand pairs: {asked:?}");
    }
}

#[test]
fn a_capture_whose_stream_is_destroyed_has_ended() {
    let rig = Rig::get();
    let program = rig.compile("odd.c", LINKED);
    let counts = rig.folder.join("ends-captures");
    let mut command = rig.with(&program);
    let done = command.arg("ends-captures").env("STANDIN_COUNTS", &counts).output();
    assert_eq!(said(&done.expect("it starts")), "done\n");
    assert_eq!(count(&counts, "cuMemAlloc_v2 "), 0, "memory is ours again");
}

/// Runs a case of `rules.c` over the stand-in, with variables.
fn keeps(rule: &str, variables: &[(&str, &Path)]) -> Output {
    let rig = Rig::get();
    let mut command = rig.with(&rig.compile("rules.c", LINKED));
    command.arg(rule).envs(variables.iter().copied());
    let done = command.output().expect("it starts");
    assert!(
        said(&done).ends_with("done\n"),
        "{rule}: {}{} {}",
        said(&done),
        complained(&done),
        done.status
    );
    done
}

#[test]
fn a_stream_waits_for_no_work_but_that_of_the_stream_that_freed() {
    keeps("streams", &[]);
}

#[test]
fn a_context_opens_without_waiting_or_loading_anything() {
    let rig = Rig::get();
    let counts = rig.folder.join("first");
    let other = rig.compile("loaded.c", &["-shared", "-fPIC"]);
    let done = keeps("first", &[("STANDIN_COUNTS", &counts), ("OMNIHEAP_NVML_LIBRARY", &other)]);
    assert_eq!(said(&done), "done\n", "NVML is not asked");
    for call in ["cuMemAllocManaged ", "cuModuleLoadDataEx ", "cuMemAlloc_v2 "] {
        assert_eq!(count(&counts, call), 0, "{call}");
    }
}

#[test]
fn the_driver_is_the_library_of_its_own_name() {
    let rig = Rig::get();
    let stubs = rig.folder.join("stubs");
    fs::create_dir_all(&stubs).expect("a folder");
    let stub = rig.compile("loaded.c", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so"]);
    symlink(stub, stubs.join("libcuda.so")).expect("a link");
    let folders = PathBuf::from(format!("{}:{}", stubs.display(), rig.folder.display()));
    let done = keeps("first", &[("LD_LIBRARY_PATH", &folders)]);
    assert_eq!((said(&done), complained(&done)), ("done\n".into(), String::new()));
}

/// As [`keeps`], and returns what the stand-in counted of a call.
fn counted(rule: &str, variable: (&str, &str), call: &str) -> u64 {
    let counts = Rig::get().folder.join(format!("counts-{rule}-{}", variable.1));
    keeps(rule, &[("STANDIN_COUNTS", &counts), (variable.0, Path::new(variable.1))]);
    assert_eq!(count(&counts, "rules.broken "), 0, "{rule}");
    count(&counts, call)
}

#[test]
fn a_loader_that_looks_up_every_name_exports_nothing() {
    assert_eq!(counted("eager", ("A", "plain"), "cuMemAlloc_v2 "), 0);
}

#[test]
fn memory_can_be_exported_after_the_first_refusal() {
    assert_eq!(counted("exports", ("A", "plain"), "cuMemAlloc_v2 "), 2);
}

#[test]
fn contexts_that_go_by_old_names_give_their_memory_back() {
    for late in ["0", "1"] {
        assert_eq!(counted("names", ("STANDIN_LATE", late), "bytes.held "), 0);
    }
}

#[test]
fn captures_and_streams_that_go_by_old_names_are_known() {
    let plain = ("A", "plain");
    assert_eq!(counted("unversioned", plain, "cuMemAllocAsync "), 1, "a node of the graph");
    assert_eq!(counted("unversioned", plain, "cuMemAlloc_v2 "), 0, "memory is ours again");
}

#[test]
fn a_context_that_was_lost_is_not_held_against_the_next_one() {
    assert_eq!(counted("again", ("A", "plain"), "cuMemAlloc_v2 "), 1, "the lost one");
}

#[test]
fn a_released_context_leaves_no_memory_behind() {
    for devices in ["1", "2"] {
        assert_eq!(counted("released", ("STANDIN_DEVICES", devices), "bytes.held "), 0);
    }
}

#[test]
fn a_context_that_ends_while_others_retain_it_leaves_nothing_to_the_next() {
    for devices in ["1", "2"] {
        assert_eq!(counted("workers", ("STANDIN_DEVICES", devices), "bytes.held "), 0);
    }
}

#[test]
fn a_context_that_others_retain_is_released_at_once() {
    keeps("retained", &[]);
}

#[test]
fn a_context_that_the_driver_keeps_has_its_memory() {
    keeps("refused", &[]);
}

#[test]
fn a_pool_that_is_chosen_by_place_serves_the_program() {
    assert_eq!(counted("pool", ("A", "plain"), "cuMemAllocAsync "), 1);
}

#[test]
fn only_a_pool_that_was_chosen_or_opened_serves_the_program() {
    let devices = ("STANDIN_DEVICES", "2");
    assert_eq!(counted("choices", devices, "cuMemAllocAsync "), 1, "the opened one");
}

#[test]
fn green_contexts_stay_with_the_driver() {
    assert_eq!(counted("green", ("A", "plain"), "cuMemAlloc_v2 "), 1);
}

#[test]
fn a_primary_context_may_end_with_a_green_one() {
    assert_eq!(counted("greens", ("A", "plain"), "bytes.held "), 0);
}

#[test]
fn bytes_that_were_freed_are_given_on_behind_the_work_that_uses_them() {
    for can_record in ["0", "1"] {
        keeps("marked", &[("STANDIN_RECORD", Path::new(can_record))]);
    }
}

#[test]
fn blocks_that_streams_freed_go_back_before_more_are_made() {
    assert!(counted("ordered", ("OMNIHEAP_IPC", "1"), "bytes.peak ") <= 192 << 20);
}

#[test]
fn rows_that_are_too_wide_are_refused() {
    keeps("pitch", &[]);
}

#[test]
fn network_cards_reach_pages_where_the_device_lets_them() {
    assert_eq!(counted("eager", ("STANDIN_RDMA", "0"), "cuMemCreate.rdma "), 0);
    assert!(counted("eager", ("STANDIN_RDMA", "1"), "cuMemCreate.rdma ") > 0);
}

#[test]
fn the_default_pool_tells_what_it_holds_and_gives_it_back() {
    for late in ["0", "1"] {
        assert_eq!(counted("figures", ("STANDIN_LATE", late), "bytes.held "), 0);
    }
}

#[test]
fn questions_about_host_memory_are_answered_at_once() {
    keeps("questions", &[]);
}

#[test]
fn a_limit_is_that_of_its_device_or_none_of_the_memory() {
    let rig = Rig::get();
    let program = rig.compile("fill.c", LINKED);
    let run = |limit| rig.with(&program).env("OMNIHEAP_LIMIT", limit).output().expect("it starts");
    let done = run("0=64MiB,1=4GiB");
    assert_eq!(said(&done), "64 blocks, then 2 at 0; 0 MiB of 64 free\n", "{}", complained(&done));
    let done = run("20 giga");
    assert_eq!(said(&done), "0 blocks, then 2 at 0; 0 MiB of 0 free\n");
    let why = "omniheap: OMNIHEAP_LIMIT: \"20 giga\" is no size such as 8GiB: no memory is given\n";
    assert_eq!(complained(&done), why);
}

#[test]
fn a_context_that_is_reset_is_looked_at_and_told_of() {
    let rig = Rig::get();
    let program = rig.compile("odd.c", LINKED);
    let report = rig.folder.join("resets.html");
    let mut command = rig.with(&program);
    command.arg("resets").env("OMNIHEAP_GUARDS", "1").env("OMNIHEAP_SUMMARY", "1");
    let done = command.env("OMNIHEAP_REPORT", &report).output().expect("it starts");
    for words in ["written behind an allocation", "1 allocations took"] {
        assert!(complained(&done).contains(words), "{}", complained(&done));
    }
    assert!(report.exists());
}

#[test]
fn without_the_driver_nobody_has_its_names() {
    let rig = Rig::get();
    let program = rig.compile("absent.c", &["-ldl"]);
    let done = rig.with(&program).output().expect("it starts");
    assert_eq!(said(&done), "found 0, said 1\n");
}

#[test]
fn a_file_in_the_place_of_the_socket_stays() {
    let rig = Rig::get();
    let program = rig.compile("fill.c", LINKED);
    let file = rig.folder.join("precious");
    fs::write(&file, "bytes").expect("a file");
    let mut command = rig.with(&program);
    let done = command.env("OMNIHEAP_CONTROL", &file).env("OMNIHEAP_LIMIT", "4M").output();
    assert!(complained(&done.expect("it starts")).contains("no orders"));
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("bytes"));
}

#[test]
fn an_ordered_limit_is_never_above_the_variables() {
    let rig = Rig::get();
    let program = rig.compile("loop.c", LINKED);
    let socket = rig.folder.join("limit.sock");
    let mut command = rig.with(&program);
    command.env("OMNIHEAP_CONTROL", &socket).env("OMNIHEAP_LIMIT", "512MiB");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("ready"));
    assert_eq!(order(&socket, "limit 1GiB"), "ok: 536870912 bytes");
    assert_eq!(order(&socket, "limit 256MiB"), "ok: 268435456 bytes");
    assert_eq!(blocked_signals(child.id()).as_deref(), Some("fffffffe7ffbfeff"));
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

/// Returns the signals that the thread for orders of a process blocks, as the system writes them.
fn blocked_signals(process: u32) -> Option<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let mut about = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let about = about.find(|about| about.starts_with("Name:\tomniheap\n"))?;
    about.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).map(str::to_owned)
}

#[test]
fn a_program_whose_error_stream_has_no_reader_writes_its_output() {
    let rig = Rig::get();
    let program = rig.compile("fill.c", LINKED);
    let mut command = rig.with(&program);
    command.env("OMNIHEAP_LIMIT", "4M").env("OMNIHEAP_SUMMARY", "1");
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stderr.take());
    let done = child.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{}", done.status);
    assert!(said(&done).starts_with("4 blocks, then 2"), "{}", said(&done));
}

#[test]
fn a_free_on_a_stream_of_another_context_waits_for_nothing() {
    keeps("elsewhere", &[]);
}

#[test]
fn a_free_on_a_stream_of_another_context_than_the_memorys_waits_for_it() {
    for devices in ["1", "2"] {
        keeps("across", &[("STANDIN_DEVICES", Path::new(devices))]);
    }
}

#[test]
fn a_device_that_is_lost_is_not_full() {
    keeps("lost", &[("OMNIHEAP_LIMIT", Path::new("64MiB"))]);
}

#[test]
fn what_was_freed_before_a_capture_is_given_out_while_it_lasts() {
    keeps("captured", &[("OMNIHEAP_LIMIT", Path::new("64MiB"))]);
}

#[test]
fn guards_of_a_block_of_its_own_are_looked_at_when_its_work_has_run() {
    let [on, ipc] = ["OMNIHEAP_GUARDS", "OMNIHEAP_IPC"].map(|name| (name, Path::new("1")));
    let done = keeps("late", &[on, ipc]);
    assert!(complained(&done).contains("written behind an allocation"), "{}", complained(&done));
}

#[test]
fn guards_of_memory_whose_stream_is_gone_are_looked_at() {
    let on = ("OMNIHEAP_GUARDS", Path::new("1"));
    for can_record in ["0", "1"] {
        let done = keeps("gone", &[on, ("STANDIN_RECORD", Path::new(can_record))]);
        let told = complained(&done);
        assert_eq!(told.matches("written behind an allocation").count(), 3, "{told}");
        assert!(!told.contains("broken rule"), "{told}");
    }
    let counts = Rig::get().folder.join("guarded");
    for rule in ["heir", "brief"] {
        let rounds = ("ROUNDS", Path::new("500"));
        keeps(rule, &[on, rounds, ("STANDIN_COUNTS", &counts)]);
        assert_eq!(count(&counts, "rules.broken "), 0, "{rule}");
    }
}

#[test]
fn memory_that_can_sleep_says_why_it_cannot_be_exported() {
    let rig = Rig::get();
    let mut command = rig.with(&rig.compile("rules.c", LINKED));
    let done = command.arg("exports").env("OMNIHEAP_SLEEP", "1").output().expect("it starts");
    assert!(complained(&done).contains("without --sleepable"), "{}", complained(&done));
}

/// Returns what stands between `run.` and the kind in the names of the files of a run.
fn files_of_run(kind: &str) -> Vec<String> {
    let files = fs::read_dir(&Rig::get().folder).expect("a folder").flatten();
    let names = files.filter_map(|it| it.file_name().into_string().ok());
    let part = |name: String| Some(name.strip_prefix("run.")?.strip_suffix(kind)?.to_owned());
    let mut parts: Vec<_> = names.filter_map(part).collect();
    parts.sort();
    parts
}

#[test]
fn processes_of_a_run_tell_of_themselves_where_the_command_would() {
    let rig = Rig::get();
    let program = rig.compile("starts.c", LINKED);
    let [errors, file, trace, report] =
        ["errors", "file", "run.omt", "run.html"].map(|name| rig.folder.join(name));
    let to = fs::File::create(&errors).expect("a file");
    let about = to.metadata().expect("it is open");
    let mut command = rig.with(Path::new("/bin/sh"));
    command.env("OMNIHEAP_SUMMARY", "1").env("OMNIHEAP_TRACE", &trace).stderr(to);
    command.env("OMNIHEAP_REPORT", &report);
    // As the command does it, whose place the program takes.
    let start = "export OMNIHEAP_RUN=$$:$0; exec \"$@\"";
    command.args(["-c", start, &format!("{}:{}", about.dev(), about.ino())]);
    let done = command.arg(&program).arg(&file).status().expect("it starts");
    assert!(done.success(), "{done}");
    assert_eq!(fs::read_to_string(file).expect("the program made it"), "", "its own file");
    let said = fs::read_to_string(errors).expect("a file");
    let lines: Vec<_> = said.lines().collect();
    let [started, first] = lines[..] else { panic!("one that it started, and itself: {said}") };
    let name = program.file_name().expect("it has one").to_string_lossy().into_owned();
    assert!(started.starts_with(&format!("omniheap: {name} (")), "{started}");
    assert!(first.starts_with("omniheap: device 0: "), "{first}");
    let traces = files_of_run("omt");
    let whole = |name: &String| Trace::open(rig.folder.join(format!("run.{name}omt"))).is_ok();
    assert!(traces.len() == 4 && traces.iter().all(whole), "one for each process: {traces:?}");
    assert_eq!(files_of_run("html"), traces, "each process has both");
}

#[test]
fn streams_come_and_go_without_end() {
    assert_eq!(counted("brief", ("STANDIN_DELAY", "0"), "cuMemAllocAsync "), 0);
}

#[test]
fn streams_come_and_go_where_the_driver_has_no_mark_of_all_work() {
    let [record, rounds] = [("STANDIN_RECORD", "0"), ("ROUNDS", "2000")];
    keeps("brief", &[record, rounds].map(|(name, value)| (name, Path::new(value))));
    keeps("heir", &[(record.0, Path::new(record.1))]);
}

#[test]
fn a_stream_ends_while_another_thread_waits_for_memory() {
    for can_record in ["0", "1"] {
        let limit = ("OMNIHEAP_LIMIT", Path::new("64MiB"));
        keeps("apart", &[("STANDIN_RECORD", Path::new(can_record)), limit]);
    }
}

#[test]
fn what_a_stream_freed_that_is_gone_waits_for_its_work() {
    keeps("heir", &[]);
}

#[test]
fn nothing_lives_at_an_address_that_was_freed() {
    for devices in ["1", "2"] {
        keeps("vacant", &[("STANDIN_DEVICES", Path::new(devices))]);
    }
}
