//! `cargo xtask mutants`: changes the sources in every way that a list of operators knows, and sees the tests catch it.
//!
//! All changes are built at once, each behind a number in the environment, so one build serves thousands of them. A first run of
//! each test binary notes which changes it comes by; a change is tried on those binaries only, the quickest first.
mod find;

use crate::binaries::beside;
use crate::bite;
use crate::step::{Outcome, seconds};
use crate::{cargo, root, target};
use core::hash::{Hash as _, Hasher as _};
use core::time::Duration;
use find::Mutant;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// What is changed where nothing is named.
const FOLDERS: [&str; 5] =
    ["seam/src", "strategy/src", "core/src", "backends/host/src", "trace/src"];

/// Packages whose tests are run, by the folder that is changed.
const PACKAGES: [(&str, &[&str]); 4] = [
    ("trace/", &["omniheap-trace"]),
    ("seam/", &["omniheap-seam", "omniheap-core", "omniheap-host", "omniheap-model"]),
    ("core/", &["omniheap-core", "omniheap-host", "omniheap-model"]),
    ("backends/host/", &["omniheap-host", "omniheap-model"]),
];

/// What a sample runs: what is built and run soonest.
const SAMPLE_TESTS: [&str; 15] = [
    "-p",
    "omniheap-seam",
    "-p",
    "omniheap-core",
    "-p",
    "omniheap-model",
    "--lib",
    "--test",
    "strategies",
    "--test",
    "order",
    "--test",
    "footprint",
    "--test",
    "scarce",
];

/// A binary that takes longer without a change is not run.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for a sample, which should take three minutes where most is built already.
const LONGEST_OF_SAMPLE: Duration = Duration::from_secs(20);
/// For how long a sample tries changes, once the tests are built.
const SAMPLE_TAKES: Duration = Duration::from_secs(60);

/// The switch, in every crate that is changed.
const SWITCH: &str = r#"
extern crate std;
/// The change of this run; notes that `number` was come by where somebody wants to know.
#[inline]
pub(crate) fn mutant(number: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static WHICH: AtomicUsize = AtomicUsize::new(usize::MAX);
    match WHICH.load(Relaxed) {
        which if which < usize::MAX - 1 => which,
        _ => slow_mutant(number, &WHICH),
    }
}
#[cold]
fn slow_mutant(number: usize, which: &std::sync::atomic::AtomicUsize) -> usize {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    const WORDS: usize = 4096;
    static SEEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
    let (seen, bit) = (&SEEN[number / 64 % WORDS], 1 << (number % 64));
    if seen.load(Relaxed) & bit != 0 {
        return 0;
    }
    let Ok(file) = std::env::var("OMNIHEAP_MUTANTS_SEEN") else {
        let set = std::env::var("OMNIHEAP_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        which.store(set, Relaxed);
        return set;
    };
    which.store(usize::MAX - 1, Relaxed);
    if seen.fetch_or(bit, Relaxed) & bit == 0 {
        use std::io::Write as _;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(std::format!("{number}\n").as_bytes()));
    }
    0
}
"#;

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    /// A test did not end.
    Hung,
    Survived,
    /// No test comes by.
    Unreached,
}

/// A test binary without a change.
struct Suite {
    path: PathBuf,
    name: String,
    time: Duration,
    reaches: BTreeSet<usize>,
}

struct Options {
    folders: Vec<String>,
    sample: Option<(usize, u64)>,
}

/// Runs every change of the named folders or files, or of [`FOLDERS`], or a sample of them.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let options = parse(arguments)?;
    let start = Instant::now();
    let tests = match options.sample {
        Some(_) => SAMPLE_TESTS.to_vec(),
        None => tests_of(&options.folders),
    };
    let (mutants, binaries) = build(&options.folders, &tests)?;
    println!("    {} changes in one build, {}", mutants.len(), seconds(start.elapsed()));
    let longest = if options.sample.is_some() { LONGEST_OF_SAMPLE } else { LONGEST };
    let suites = try_without(binaries, longest)?;
    let mut state = State::load()?;
    let mut chosen: Vec<&Mutant> = mutants.iter().filter(|one| !state.is_caught(one)).collect();
    if let Some((count, seed)) = options.sample {
        println!("    {count} of them; the same again: --sample {count} --seed {seed}");
        chosen = mutants.iter().collect();
        shuffle(&mut chosen, seed);
        chosen.truncate(count);
    }
    let ends = options.sample.map(|_| Instant::now() + SAMPLE_TAKES);
    let count = chosen.len();
    let found = try_all(chosen, &suites, ends);
    say(&found, count);
    found.into_iter().for_each(|(mutant, verdict)| state.note(mutant, verdict));
    state.save()?;
    if options.sample.is_none() { write_scores(&mutants, &mut state) } else { Ok(()) }
}

/// A sample with another seed each time, for the test run: it shows what survives, and luck decides nothing else.
pub(crate) fn sample() -> Outcome {
    let arguments = ["seam/src", "strategy/src", "core/src", "--sample", "40"];
    run(&arguments.map(String::from))
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let (mut folders, mut count, mut seed) = (Vec::new(), None, None);
    let mut rest = arguments.iter();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--sample" => count = Some(number(rest.next()).ok_or("--sample N")?),
            "--seed" => seed = Some(number(rest.next()).ok_or("--seed S")?),
            path if root().join(path).exists() => folders.push(path.to_owned()),
            other => return Err(format!("{other} is neither an option nor a path")),
        }
    }
    if folders.is_empty() {
        folders = FOLDERS.map(String::from).into();
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = seed.unwrap_or_else(|| now.map_or(0, |now| now.as_secs()));
    let sample = count.map(|count| (usize::try_from(count).unwrap_or(usize::MAX), seed));
    Ok(Options { folders, sample })
}

/// Builds the tests over a copy of the tree with every change; those that do not compile are left out.
fn build(folders: &[String], tests: &[&str]) -> Result<(Vec<Mutant>, Binaries), String> {
    let tree = target().join("mutants/tree");
    bite::copy(&tree)?;
    let known = equivalent()?;
    let mut broken = BTreeSet::new();
    loop {
        let (mutants, places) = write(&tree, folders, |one| {
            known.contains(&line(one)) || broken.contains(&(line(one), one.line))
        })?;
        let errors = match compile(&tree, tests)? {
            Ok(binaries) => return Ok((mutants, binaries)),
            Err(errors) => errors,
        };
        let before = broken.len();
        for (file, at) in &errors {
            let here = places.get(file).into_iter().flatten();
            let mut around = here.filter(|(range, _)| range.contains(at));
            let number = around.next().map(|(_, number)| *number);
            let one = mutants.iter().find(|one| Some(one.number) == number);
            broken.extend(one.map(|one| (line(one), one.line)));
        }
        if broken.len() == before {
            return Err(format!("the copy with changes does not build: {errors:?}"));
        }
    }
}

/// Test binaries: their names, and where they are.
type Binaries = Vec<(String, PathBuf)>;
/// Where errors are: files, and bytes in them.
type Errors = Vec<(String, usize)>;
/// By file: where changes are in the changed text, and their numbers.
type Places = BTreeMap<String, Vec<(core::ops::Range<usize>, usize)>>;

/// Writes the changed sources.
fn write(
    tree: &Path,
    folders: &[String],
    skipped: impl Fn(&Mutant) -> bool,
) -> Result<(Vec<Mutant>, Places), String> {
    let (mut mutants, mut places) = (Vec::new(), Places::new());
    let mut libraries = BTreeMap::new();
    for file in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        let source = bite::read(&file)?;
        let changed = find::change(&name, &source, mutants.len() + 1, &skipped)?;
        mutants.extend(changed.mutants);
        places.insert(name.clone(), changed.places);
        if let Some((package, rest)) = name.split_once("src/") {
            let library = libraries.entry(format!("{package}src/lib.rs")).or_insert(None);
            if rest == "lib.rs" {
                *library = Some(changed.text);
                continue;
            }
        }
        save(&tree.join(&name), &changed.text)?;
    }
    for (library, changed) in libraries {
        let text = changed.map_or_else(|| bite::read(&root().join(&library)), Ok)?;
        save(&tree.join(&library), &(text + SWITCH))?;
    }
    Ok((mutants, places))
}

/// Writes a changed source; one that is as it was the last time keeps its age, so that cargo does not build it again.
fn save(path: &Path, text: &str) -> Outcome {
    bite::save(path, text)?;
    let name = path.to_string_lossy().replace('/', "+");
    let last = target().join("mutants/written").join(name);
    if fs::read_to_string(&last).is_ok_and(|last| last == text) {
        let age = fs::metadata(&last).and_then(|about| about.modified());
        let file = fs::File::options().append(true).open(path);
        let kept = age.and_then(|age| file?.set_modified(age));
        return kept.map_err(|error| format!("{}: {error}", path.display()));
    }
    fs::create_dir_all(target().join("mutants/written")).map_err(|error| error.to_string())?;
    bite::save(&last, text)
}

/// Every source below a path; tests and models have files of their own.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut entries: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    let is_source = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        path.is_dir()
            || (name.ends_with(".rs") && !name.starts_with("tests") && !name.starts_with("models"))
    };
    entries.into_iter().filter(is_source).flat_map(|path| sources(&path)).collect()
}

/// Cargo's arguments for the tests of what is changed.
fn tests_of(folders: &[String]) -> Vec<&'static str> {
    let under = |folder: &str| folders.iter().any(|path| path.starts_with(folder));
    let packages = PACKAGES.iter().filter(|(folder, _)| under(folder));
    let packages: BTreeSet<_> = packages.flat_map(|(_, packages)| *packages).collect();
    packages.into_iter().flat_map(|name| ["-p", name]).chain(["--lib", "--tests"]).collect()
}

/// Builds the tests; where each binary is, or where errors are.
fn compile(tree: &Path, tests: &[&str]) -> Result<Result<Binaries, Errors>, String> {
    let mut command = cargo(&["test", "--release", "--no-run", "--message-format=json"]);
    command.args(tests);
    // Quick to run, and with every check of a debug build.
    let flags = "--cap-lints allow -Cdebug-assertions -Coverflow-checks -Copt-level=1";
    command.current_dir(tree).env("RUSTFLAGS", flags);
    command.env("CARGO_TARGET_DIR", target().join("mutants/built"));
    let output =
        command.stderr(Stdio::null()).output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        let binary = |message: &Value| {
            let path = message["executable"].as_str().map(PathBuf::from)?;
            Some((message["target"]["name"].as_str()?.to_owned(), path))
        };
        return Ok(Ok(messages.iter().filter_map(binary).collect()));
    }
    let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
    let spans = errors
        .flat_map(|message| message["message"]["spans"].as_array().cloned().unwrap_or_default());
    let place = |span: Value| {
        let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
        let name = span["file_name"].as_str()?;
        Some((
            name.strip_prefix(&*tree.to_string_lossy())
                .unwrap_or(name)
                .trim_start_matches('/')
                .to_owned(),
            at,
        ))
    };
    Ok(Err(spans.filter_map(place).collect()))
}

/// Runs every binary without a change, twice: to see how long it takes, and what it comes by.
fn try_without(binaries: Binaries, longest: Duration) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    for (name, path) in binaries {
        let start = Instant::now();
        let ended = wait(test(&path, 0), longest)?;
        let time = start.elapsed();
        match ended {
            None => {
                println!("    {name} takes more than {} and is not run", seconds(longest));
                continue;
            }
            Some(false) => return Err(format!("{name} fails without a change")),
            Some(true) => {}
        }
        let seen = target().join("mutants/seen.txt");
        bite::save(&seen, "")?;
        let mut command = test(&path, 0);
        command.env("OMNIHEAP_MUTANTS_SEEN", &seen);
        wait(command, longest * 4)?;
        let reaches = bite::read(&seen)?.lines().filter_map(|line| line.parse().ok()).collect();
        suites.push(Suite { path, name, time, reaches });
    }
    suites.sort_by_key(|suite| suite.time);
    let names: Vec<_> =
        suites.iter().map(|one| format!("{} {}", one.name, seconds(one.time))).collect();
    println!("    tests: {}", names.join(", "));
    Ok(suites)
}

/// A run of a test binary with a change.
fn test(path: &Path, number: usize) -> Command {
    let mut command = Command::new(path);
    command.env("OMNIHEAP_MUTANT", number.to_string()).env("OMNIHEAP_OPERATIONS", "20000");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Whether a command ends well; `None` when it does not end in time.
fn wait(mut command: Command, longest: Duration) -> Result<Option<bool>, String> {
    let start = Instant::now();
    let mut child: Child = command.spawn().map_err(|error| error.to_string())?;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => return Ok(Some(status.success())),
            None if start.elapsed() > longest => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Tries changes beside each other, until a time where there is one.
fn try_all<'a>(
    chosen: Vec<&'a Mutant>,
    suites: &[Suite],
    ends: Option<Instant>,
) -> Vec<(&'a Mutant, Verdict)> {
    let found = Mutex::new(Vec::new());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    beside(count, chosen, |mutant| {
        if ends.is_none_or(|ends| Instant::now() < ends) {
            let verdict = try_one(mutant, suites);
            if matches!(verdict, Verdict::Survived | Verdict::Unreached) {
                println!(
                    "    {verdict:?}: {}:{}: {}: {}",
                    mutant.file, mutant.line, mutant.change, mutant.text
                );
            }
            found.lock().expect("nobody panics").push((*mutant, verdict));
        }
        true
    });
    found.into_inner().expect("nobody panics")
}

fn try_one(mutant: &Mutant, suites: &[Suite]) -> Verdict {
    let mut verdict = Verdict::Unreached;
    for suite in suites.iter().filter(|suite| suite.reaches.contains(&mutant.number)) {
        match wait(test(&suite.path, mutant.number), suite.time * 4 + Duration::from_secs(10)) {
            Ok(Some(true)) => verdict = Verdict::Survived,
            Ok(None) => return Verdict::Hung,
            Ok(Some(false)) | Err(_) => return Verdict::Caught,
        }
    }
    verdict
}

fn say(found: &[(&Mutant, Verdict)], wanted: usize) {
    let of = |wanted: Verdict| found.iter().filter(|(_, verdict)| *verdict == wanted).count();
    println!(
        "    {} caught, {} did not end, {} survived, {} come by no test; {} were not tried",
        of(Verdict::Caught),
        of(Verdict::Hung),
        of(Verdict::Survived),
        of(Verdict::Unreached),
        wanted - found.len(),
    );
}

/// What names a change also after lines were added before it.
fn line(one: &Mutant) -> String {
    format!("{} | {} | {}", one.file, one.change, one.text)
}

/// The changes that are known to make no difference.
fn equivalent() -> Result<BTreeSet<String>, String> {
    let text = bite::read(&root().join("xtask/src/mutants/equivalent.txt"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| match line.rsplit_once(" | ") {
            Some((change, why)) if !why.is_empty() => Ok(change.to_owned()),
            _ => Err(format!("equivalent.txt: no reason in: {line}")),
        })
        .collect()
}

/// What came of changes in earlier runs: a change of a file that is as it was need not be caught again.
struct State {
    verdicts: serde_json::Map<String, Value>,
    files: BTreeMap<String, u64>,
}

impl State {
    fn path() -> PathBuf {
        target().join("mutants/state.json")
    }

    fn load() -> Result<Self, String> {
        let text = fs::read_to_string(Self::path()).unwrap_or_else(|_| "{}".into());
        let verdicts =
            serde_json::from_str(&text).map_err(|error| format!("state.json: {error}"))?;
        Ok(Self { verdicts, files: BTreeMap::new() })
    }

    fn save(&self) -> Outcome {
        bite::save(&Self::path(), &Value::Object(self.verdicts.clone()).to_string())
    }

    fn key(&mut self, one: &Mutant) -> String {
        let hash = self.files.entry(one.file.clone()).or_insert_with(|| {
            let mut hasher = DefaultHasher::new();
            fs::read(root().join(&one.file)).unwrap_or_default().hash(&mut hasher);
            hasher.finish()
        });
        format!("{hash:x} {} {}", one.line, line(one))
    }

    fn note(&mut self, one: &Mutant, verdict: Verdict) {
        let key = self.key(one);
        self.verdicts.insert(key, json!(format!("{verdict:?}")));
    }

    fn of(&mut self, one: &Mutant) -> Option<String> {
        let key = self.key(one);
        self.verdicts.get(&key).and_then(Value::as_str).map(String::from)
    }

    fn is_caught(&mut self, one: &Mutant) -> bool {
        matches!(self.of(one).as_deref(), Some("Caught" | "Hung"))
    }
}

/// Writes the scores of all modules that were tried; those of others stay as they are.
fn write_scores(mutants: &[Mutant], state: &mut State) -> Outcome {
    let path = root().join("docs/results/mutants.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let rows =
        old.lines().filter_map(|line| Some((line.split(" | ").next()?.strip_prefix("| `")?, line)));
    let mut rows: BTreeMap<String, String> =
        rows.map(|(name, line)| (name.trim_end_matches('`').to_owned(), line.to_owned())).collect();
    let mut modules: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for one in mutants {
        let counts = modules.entry(&one.file).or_default();
        let at = match state.of(one).as_deref() {
            Some("Caught" | "Hung") => 0,
            Some("Survived") => 1,
            _ => 2,
        };
        counts[at] += 1;
    }
    for (file, [caught, survived, unreached]) in modules {
        let all = caught + survived + unreached;
        let share = caught * 1000 / all.max(1);
        let share = format!("{}.{} %", share / 10, share % 10);
        let row = format!("| `{file}` | {all} | {caught} | {survived} | {unreached} | {share} |");
        rows.insert(file.to_owned(), row);
    }
    let rows: Vec<_> = rows.into_values().collect();
    bite::save(&path, &format!("{HEADING}{}\n", rows.join("\n")))
}

const HEADING: &str = "\
# Changes that tests catch

Written by `cargo xtask mutants [PATH…]`; see `xtask/src/mutants.rs`. A change is one operator applied at one place. `caught`: a test
fails or does not end. `survived`: tests come by it and pass. `unreached`: none of the tests that were run comes by. Changes that make no difference are
in `xtask/src/mutants/equivalent.txt`, with reasons, and are not counted.

| module | changes | caught | survived | unreached | share caught |
|---|---|---|---|---|---|
";

/// Puts changes into an order that depends on a seed alone.
fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut state = seed;
    for at in (1..all.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from((state >> 33) % (at as u64 + 1)).unwrap_or(0);
        all.swap(at, other);
    }
}
